// Package comm is a small Go face of the one-sided half of HCCL, the communication library of Huawei's NPUs:
// communicators of two ranks, memory that the peer may reach, puts and gets. Like its twin, the binding of
// AscendCL, it declares the C interface itself and loads the vendor's library while the program runs.
//
// # Threads
//
// HCCL looks at the context of AscendCL that is current on the calling thread. So what calls it takes an
// acl.Current: a Thread inside Context.Do, or a Guest inside Context.Apart. Making, preparing and closing a
// communicator, and registering, may block for long: call them Apart. Put and Get only queue. The methods of one
// Comm may be called from several threads; those of several Comms go side by side, except for making one,
// which has a lock for the process.
//
// # Two sequences
//
// Libraries since about CANN 8.3 register memory once, bind it to each communicator and prepare; older ones register
// with each communicator, exchange descriptors and enable access. Both are the same here: Register, NewComm, Bind,
// Prepare, Put and Get, Close. Memory that is bound after Prepare is for this end's own use only.
//
// # Completion, and what a failure leaves
//
// Put and Get return when the batch is queued on its stream; acl.Stream.Notify tells when it has ended. A batch
// that failed in the call may have been queued in part, and a communicator whose stream was aborted keeps what was
// posted. So after any failure the communicator takes no more, and is to be closed; its successor has a new name.
// Close tells whether the communicator is proven to be gone.
//
// # Ownership
//
// Who registers memory closes the Region, after all communicators it is bound to, and before the memory goes.
// Whoever makes a communicator closes it. Library.Close refuses while anything is left.
package comm
