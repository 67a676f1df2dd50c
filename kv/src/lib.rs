//! The reference data plane: a small replicated durable store
