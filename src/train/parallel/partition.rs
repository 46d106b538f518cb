//! Which parameters' optimizer state is whose.

use crate::member::{Member, Parallelism};

/// The parameters that this rank's optimizer updates, in its order; `None`: all of them.
///
/// `ZeroRedundancyOptimizer` sorts parameters by size, the largest first, and hands each to the rank with the fewest elements
/// so far, the lowest of equals.
pub(crate) fn share_of(member: Member, sizes: &[usize]) -> Option<Vec<usize>> {
    if member.parallelism != Parallelism::Zero1 {
        return None;
    }
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&parameter| std::cmp::Reverse(sizes[parameter]));
    let mut elements = vec![0_usize; member.world.size()];
    let mut own = Vec::new();
    for parameter in order {
        let Some((rank, least)) = elements.iter_mut().enumerate().min_by_key(|(rank, elements)| (**elements, *rank))
        else {
            continue;
        };
        *least = least.saturating_add(sizes[parameter]);
        if rank == member.world.rank() {
            own.push(parameter);
        }
    }
    Some(own)
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
