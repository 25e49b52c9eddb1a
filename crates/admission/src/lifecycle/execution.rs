//! How long a workload ran and may run.

use slicegate_workload::{ConditionType, Status, Timestamp, Workload, WorkloadStatus};

/// The seconds the workload was admitted, earlier attempts included, once it is finished; `None` if that is not known.
pub fn execution_seconds(status: &WorkloadStatus) -> Option<i64> {
    let finished = status.conditions.get(&ConditionType::Finished).filter(|c| c.status == Status::True)?;
    let admitted = status.conditions.get(&ConditionType::Admitted).filter(|c| c.status == Status::True);
    let past = status.accumulated_past_execution_time_seconds.map(i64::from);
    let last = admitted.map(|a| finished.last_transition.micros_since(a.last_transition) / 1_000_000);
    match (past, last) {
        (None, None) => None,
        (past, last) => Some(past.unwrap_or(0).saturating_add(last.unwrap_or(0))),
    }
}

/// What the limit on execution time asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MaxExecutionTime {
    /// There is no limit, or the workload does not run.
    None,
    /// It may run until then.
    Until(Timestamp),
    /// It ran too long.
    Exceeded {
        /// The limit.
        seconds: i32,
    },
}

/// Whether the workload may run on.
pub fn max_execution_time(workload: &Workload, now: Timestamp) -> MaxExecutionTime {
    let status = &workload.status;
    let Some(seconds) = workload.spec.maximum_execution_time_seconds else { return MaxExecutionTime::None };
    let Some(admitted) = status.conditions.get(&ConditionType::Admitted).filter(|c| c.status == Status::True) else {
        return MaxExecutionTime::None;
    };
    if status.conditions.is_true(&ConditionType::Evicted) || !workload.spec.active {
        return MaxExecutionTime::None;
    }
    let past = status.accumulated_past_execution_time_seconds.unwrap_or(0);
    let end = admitted.last_transition.plus_seconds(i64::from(seconds).saturating_sub(i64::from(past)));
    if end <= now { MaxExecutionTime::Exceeded { seconds } } else { MaxExecutionTime::Until(end) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::At;

    #[test]
    fn earlier_attempts_count_against_the_limit() {
        let mut workload = Workload::default();
        let at = At { now: Timestamp::from_seconds(100), generation: 1 };
        at.set(&mut workload.status, ConditionType::Admitted, Status::True, "Admitted", "");
        let second = Timestamp::from_seconds;
        assert_eq!(max_execution_time(&workload, second(1000)), MaxExecutionTime::None);
        workload.spec.maximum_execution_time_seconds = Some(60);
        workload.status.accumulated_past_execution_time_seconds = Some(20);
        assert_eq!(max_execution_time(&workload, second(139)), MaxExecutionTime::Until(second(140)));
        assert_eq!(max_execution_time(&workload, second(140)), MaxExecutionTime::Exceeded { seconds: 60 });
        at.set(&mut workload.status, ConditionType::Evicted, Status::True, "Preempted", "");
        assert_eq!(max_execution_time(&workload, second(1000)), MaxExecutionTime::None);
    }
}
