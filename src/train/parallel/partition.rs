//! Which parameters' optimizer state is whose.

use vramlab_model::Parallelism;

use super::server::SERVER;
use crate::member::Member;

/// The parameters that this rank's optimizer updates, in its order; `None`: all of them.
///
/// `ZeroRedundancyOptimizer` sorts parameters by size, the largest first, and hands each to the rank with the fewest elements
/// so far, the lowest of equals.
pub(crate) fn share_of(member: Member, sizes: &[usize]) -> Option<Vec<usize>> {
    match member.parallelism {
        Parallelism::Zero1 => {}
        Parallelism::Server if member.world.rank() != SERVER => return Some(Vec::new()),
        _ => return None,
    }
    let owners = owners(member.world.size(), sizes);
    Some(by_size(sizes).into_iter().filter(|&parameter| owners[parameter] == member.world.rank()).collect())
}

/// Parameters by size, the largest first.
fn by_size(sizes: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&parameter| std::cmp::Reverse(sizes[parameter]));
    order
}

/// By parameter, the rank whose optimizer updates it.
pub(super) fn owners(ranks: usize, sizes: &[usize]) -> Vec<usize> {
    let (mut elements, mut owners) = (vec![0_usize; ranks], vec![0; sizes.len()]);
    for parameter in by_size(sizes) {
        let least = elements.iter_mut().enumerate().min_by_key(|(rank, elements)| (**elements, *rank));
        if let Some((rank, least)) = least {
            *least = least.saturating_add(sizes[parameter]);
            owners[parameter] = rank;
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::World;

    #[test]
    fn the_largest_go_first_and_to_whoever_has_least() {
        let share = |rank, sizes: &[usize]| {
            share_of(Member { parallelism: Parallelism::Zero1, world: World::new(2, rank).unwrap() }, sizes).unwrap()
        };
        assert_eq!(share(0, &[3, 8, 3, 4]), [1]);
        assert_eq!(share(1, &[3, 8, 3, 4]), [3, 0, 2]);
        assert_eq!(share(0, &[1, 1, 1]), [0, 2]);
    }
}
