"""Pictures of training that sends less: ways of workers, what arrived, thin matrices, bytes."""
