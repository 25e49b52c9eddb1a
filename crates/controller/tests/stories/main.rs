//! Jobs from creation to their end, on a small API server in memory.

#[cfg(test)]
mod again;
#[cfg(test)]
mod api;
#[cfg(test)]
mod backoff;
#[cfg(test)]
mod batch;
#[cfg(test)]
mod capacity;
#[cfg(test)]
mod chaos;
#[cfg(test)]
mod checks;
#[cfg(test)]
mod elastic;
#[cfg(test)]
mod jobsets;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod late;
#[cfg(test)]
mod namesake;
#[cfg(test)]
mod node_pools;
#[cfg(test)]
mod past_usage;
#[cfg(test)]
mod places;
#[cfg(test)]
mod prebuilt;
#[cfg(test)]
mod ray;
#[cfg(test)]
mod restart;
mod stopped;
#[cfg(test)]
mod wrong;
