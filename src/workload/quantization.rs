//! Frozen linear layers in 4 bits, as bitsandbytes keeps them under adapters (QLoRA).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::unread::Unread;
use vramlab_device::DType;

/// How frozen linear layers are kept: in NF4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantization {
    /// The largest magnitudes of runs are quantised too (`bnb_4bit_use_double_quant`).
    pub nested: bool,
    /// The type in which products are computed (`bnb_4bit_compute_dtype`).
    pub compute: DType,
    /// The element type that the bytes are stored as (`bnb_4bit_quant_storage`), if it is given: ranks shard parameters of the
    /// same type as the other weights.
    pub storage: Option<DType>,
}

impl Quantization {
    /// Its words, plain and nested.
    pub const WORDS: [&'static str; 2] = ["nf4", "nf4-double"];
}

/// How a model with layers in 4 bits is prepared for training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preparation {
    /// With peft's `prepare_model_for_kbit_training`: parameters that are not quantised become f32.
    #[default]
    Kbit,
    /// With that, and then TRL's `peft_module_casting_to_bf16`: embeddings and head become bf16 again, norms stay.
    Trl,
    /// Not at all: parameters that are not quantised keep their type.
    Nothing,
}

impl Preparation {
    /// Its words.
    pub const WORDS: [&'static str; 3] = ["kbit", "trl", "none"];
    const ALL: [Self; 3] = [Self::Kbit, Self::Trl, Self::Nothing];
}

impl FromStr for Preparation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || format!("a model is prepared by way of {}, not '{text}'", Self::WORDS.join(", "));
        Self::WORDS.iter().position(|word| *word == text).map(|place| Self::ALL[place]).ok_or_else(known)
    }
}

impl fmt::Display for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::WORDS[*self as usize])
    }
}

impl<'de> Deserialize<'de> for Preparation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for Quantization {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Self::WORDS.iter().position(|word| *word == text) {
            Some(place) => Ok(Self { nested: place == 1, compute: DType::Bf16, storage: None }),
            None => Err(format!("layers are quantised as {}, not '{text}'", Self::WORDS.join(" or "))),
        }
    }
}

impl fmt::Display for Quantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::WORDS[usize::from(self.nested)])
    }
}

impl<'de> Deserialize<'de> for Quantization {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Keys of a `quantization_config` that change neither memory nor arithmetic of a training step in 4 bits.
const HARMLESS: [&str; 5] = [
    "_load_in_4bit",
    "llm_int8_enable_fp32_cpu_offload",
    "llm_int8_has_fp16_weight",
    "llm_int8_threshold",
    "quant_method",
];

/// The `quantization_config` of a `config.json`: keys are those of transformers' `BitsAndBytesConfig`, and so are the values of
/// missing keys.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BitsAndBytesConfig {
    quant_method: Option<String>,
    load_in_4bit: Option<bool>,
    bnb_4bit_quant_type: Option<String>,
    bnb_4bit_use_double_quant: Option<bool>,
    bnb_4bit_compute_dtype: Option<String>,
    bnb_4bit_quant_storage: Option<String>,
    llm_int8_skip_modules: Option<Vec<String>>,
    #[serde(flatten)]
    rest: BTreeMap<String, Unread>,
}

impl BitsAndBytesConfig {
    /// The method that it names.
    pub fn method(&self) -> Option<&str> {
        self.quant_method.as_deref()
    }

    /// The quantisation that it describes.
    ///
    /// # Errors
    /// A sentence: the key that asks for something unsupported.
    pub fn quantization(&self) -> Result<Quantization, String> {
        let no = |key: &str, is: &str, known: &str| Err(format!("{key} '{is}' is not there; there is {known}"));
        if let Some(other) = self.quant_method.as_deref().filter(|method| *method != "bitsandbytes") {
            return no("quant_method", other, "bitsandbytes");
        }
        let asks = |(key, value): &(&String, &Unread)| !HARMLESS.contains(&key.as_str()) && !value.is_off();
        if let Some((key, _)) = self.rest.iter().find(asks) {
            return Err(format!("{key} asks for something that is not there; leave it out"));
        }
        if self.load_in_4bit != Some(true) {
            return Err("load_in_4bit is not true; there are layers in 4 bits alone".to_owned());
        }
        match self.bnb_4bit_quant_type.as_deref() {
            Some("nf4") => {}
            other => return no("bnb_4bit_quant_type", other.unwrap_or("fp4"), "nf4"),
        }
        if self.llm_int8_skip_modules.as_ref().is_some_and(|modules| modules.iter().any(|name| name != "lm_head")) {
            return Err("llm_int8_skip_modules asks for something that is not there; name lm_head alone".to_owned());
        }
        let compute = match self.bnb_4bit_compute_dtype.as_deref() {
            None | Some("float32") => DType::F32,
            Some("bfloat16") => DType::Bf16,
            Some("float16") => DType::F16,
            Some(other) => return no("bnb_4bit_compute_dtype", other, "bfloat16, float16 and float32"),
        };
        let storage = match self.bnb_4bit_quant_storage.as_deref() {
            None | Some("uint8") => DType::U8,
            Some("bfloat16") => DType::Bf16,
            Some("float16") => DType::F16,
            Some("float32") => DType::F32,
            Some(other) => return no("bnb_4bit_quant_storage", other, "uint8, bfloat16, float16 and float32"),
        };
        let nested = self.bnb_4bit_use_double_quant == Some(true);
        Ok(Quantization { nested, compute, storage: Some(storage) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantization_config_is_nf4_or_a_sentence() {
        let read = |text: &str| -> Result<Quantization, String> {
            serde_json::from_str::<BitsAndBytesConfig>(text).map_err(|error| error.to_string())?.quantization()
        };
        let text = |more: &str| {
            format!(
                r#"{{"quant_method": "bitsandbytes", "_load_in_4bit": true, "_load_in_8bit": false, "load_in_4bit": true, "load_in_8bit": false,
                "bnb_4bit_quant_storage": "uint8", "llm_int8_threshold": 6.0, "llm_int8_skip_modules": null{more}}}"#
            )
        };
        let nf4 = r#", "bnb_4bit_quant_type": "nf4""#;
        let plain = Quantization { nested: false, compute: DType::F32, storage: Some(DType::U8) };
        assert_eq!(read(&text(nf4)), Ok(plain));
        let double = format!(r#"{nf4}, "bnb_4bit_use_double_quant": true, "bnb_4bit_compute_dtype": "bfloat16""#);
        let nested = Quantization { storage: Some(DType::U8), .."nf4-double".parse().unwrap() };
        assert_eq!(read(&text(&double)), Ok(nested));
        let wrong = [
            (String::new(), "bnb_4bit_quant_type 'fp4' is not there; there is nf4"),
            (format!(r#"{nf4}, "bnb_4bit_compute_dtype": "float64""#), "bnb_4bit_compute_dtype 'float64' is not there"),
            (format!(r#"{nf4}, "bnb_4bit_blocksize": 128"#), "bnb_4bit_blocksize asks for something"),
        ];
        for (more, sentence) in wrong {
            assert!(read(&text(&more)).unwrap_err().starts_with(sentence), "{more}: {:?}", read(&text(&more)));
        }
        let eight = r#"{"load_in_8bit": true}"#;
        assert!(read(eight).unwrap_err().starts_with("load_in_8bit asks"), "{:?}", read(eight));
        assert!(read(r#"{"quant_method": "gptq"}"#).unwrap_err().starts_with("quant_method 'gptq'"));
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for word in Quantization::WORDS {
            assert_eq!(word.parse::<Quantization>().unwrap().to_string(), word);
        }
        assert_eq!(
            "int8".parse::<Quantization>().unwrap_err(),
            "layers are quantised as nf4 or nf4-double, not 'int8'"
        );
    }
}
