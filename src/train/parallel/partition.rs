//! Which rank holds the optimizer state of which parameters.

use vramlab_model::Parallelism;

use super::server::SERVER;
use crate::member::Member;

/// How ranks share out what optimizers update.
pub(crate) struct Shares {
    /// The parameters that this rank's optimizers update, in their order; `None` if it updates all.
    pub own: Option<Vec<usize>>,
    /// By parameter, the rank whose optimizer updates it, if ranks hold whole parameters and share the updates.
    pub owners: Option<Vec<usize>>,
}

impl Shares {
    /// The shares of a rank. Each of the `sets` of parameters has an optimizer of its own, and is shared out by itself; `sizes`
    /// has the sizes of all parameters.
    ///
    /// `ZeroRedundancyOptimizer` sorts parameters by size, the largest first, and gives each to the rank with the fewest elements
    /// so far, the lowest of equals.
    pub fn of(member: Member, sizes: &[usize], sets: &[Vec<usize>]) -> Self {
        match member.parallelism {
            Parallelism::Zero1 => {}
            Parallelism::Server if member.world.rank() != SERVER => {
                return Self { own: Some(Vec::new()), owners: None };
            }
            _ => return Self { own: None, owners: None },
        }
        let mut owners = vec![0; sizes.len()];
        let mut own = Vec::new();
        for set in sets {
            let mut elements = vec![0_usize; member.world.size()];
            for parameter in by_size(sizes, set) {
                let least = elements.iter_mut().enumerate().min_by_key(|(rank, elements)| (**elements, *rank));
                let Some((rank, least)) = least else { continue };
                *least = least.saturating_add(sizes[parameter]);
                owners[parameter] = rank;
                if rank == member.world.rank() {
                    own.push(parameter);
                }
            }
        }
        Self { own: Some(own), owners: Some(owners) }
    }
}

/// The parameters of a set by size, the largest first.
fn by_size(sizes: &[usize], set: &[usize]) -> Vec<usize> {
    let mut order = set.to_vec();
    order.sort_by_key(|&parameter| std::cmp::Reverse(sizes[parameter]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::World;

    fn shares(rank: usize, sizes: &[usize], sets: &[Vec<usize>]) -> Shares {
        Shares::of(Member { parallelism: Parallelism::Zero1, world: World::new(2, rank).unwrap() }, sizes, sets)
    }

    #[test]
    fn the_largest_go_first_and_to_whoever_has_least() {
        let share = |rank, sizes: &[usize]| shares(rank, sizes, &[(0..sizes.len()).collect()]).own.unwrap();
        assert_eq!(share(0, &[3, 8, 3, 4]), [1]);
        assert_eq!(share(1, &[3, 8, 3, 4]), [3, 0, 2]);
        assert_eq!(share(0, &[1, 1, 1]), [0, 2]);
    }

    #[test]
    fn each_optimizer_is_shared_out_by_itself() {
        let sets = [vec![1, 3], vec![0, 2]];
        assert_eq!(shares(0, &[3, 8, 3, 4], &sets).own.unwrap(), [1, 0]);
        assert_eq!(shares(1, &[3, 8, 3, 4], &sets).own.unwrap(), [3, 2]);
        assert_eq!(shares(1, &[3, 8, 3, 4], &sets).owners.unwrap(), [0, 0, 1, 1]);
    }
}
