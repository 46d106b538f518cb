//! A parameter server: one rank has the optimizer. Ranks send it gradients, and get parameters back.

use crate::communicator::Communicator;
use crate::context::Context;
use crate::error::OpResult;
use crate::hooks::Hooks;
use crate::member::World;
use crate::tensor::Tensor;
use vramlab_device::kernels;

/// The rank of the server. It works on its part of the batch like the others.
pub(super) const SERVER: usize = 0;

/// One rank's side of it. After backward, gradients are reduced onto the server, which averages them and runs the
/// optimizer; then every rank gets the parameters. All of it happens in place: compared with the others, the server only
/// adds the optimizer's state and the temporaries of its step.
pub(super) struct Server {
    communicator: Communicator,
}

impl Server {
    /// Every rank starts with the server's parameters and buffers.
    pub fn wrap(cx: &mut Context, world: World) -> OpResult<Self> {
        let communicator = Communicator::new(cx.memory(), world, cx.seat.as_ref())?;
        let state: Vec<Tensor> = cx.leaves.iter().map(|leaf| leaf.data.clone()).chain(cx.buffers()).collect();
        communicator.broadcast(cx.memory(), &state, |_| SERVER)?;
        communicator.join(cx.memory())?;
        Ok(Self { communicator })
    }
}

impl Hooks<Context> for Server {
    fn after_backward(&mut self, cx: &mut Context) -> OpResult<()> {
        if !cx.synchronises {
            return Ok(());
        }
        let gradients: Vec<Tensor> = cx.leaves.iter().filter_map(|leaf| leaf.gradient.clone()).collect();
        self.communicator.reduce(cx.memory(), &gradients, SERVER)?;
        self.communicator.join(cx.memory())?;
        let world = self.communicator.world();
        if world.rank() != SERVER {
            return Ok(());
        }
        #[expect(clippy::cast_precision_loss, reason = "ranks of a world")]
        let factor = 1.0 / world.size() as f64;
        gradients.iter().try_for_each(|gradient| {
            cx.launch(kernels::Elementwise::Scale { src: gradient.flat(), dst: gradient.flat(), factor })
        })
    }

    fn after_optimizer(&mut self, cx: &mut Context) -> OpResult<()> {
        let trained: Vec<Tensor> = cx.leaves.iter().filter(|leaf| !leaf.frozen).map(|leaf| leaf.data.clone()).collect();
        self.communicator.broadcast(cx.memory(), &trained, |_| SERVER)?;
        self.communicator.join(cx.memory())
    }

    fn abandon(&mut self, _: &mut Context) {}
}
