// Package comm is a Go binding of the one-sided half of HCCL, the communication library of Huawei's NPUs: communicators
// of two ranks, memory that the peer may reach, puts and gets. Like the binding of AscendCL (package acl), the package
// declares the C interface itself and loads the vendor's library while the program runs.
//
//	lib, err := comm.Open(comm.Options{})
//	err = ctx.DoBlocking(func(thread *acl.BlockingThread) error { // these may block for long
//		region, err := lib.RegisterMemory(thread, memory)
//		c, err := lib.NewComm(thread, comm.CommOptions{Name: "a-1", Rank: 0, RankTable: table})
//		err = c.Bind(thread, region)
//		return c.Prepare(thread, 10*time.Second, 1) // meets the other end
//	})
//	err = ctx.Do(func(t *acl.Thread) error { return c.Put(t, stream, descs) })
//
// # Threads
//
// HCCL uses the context of AscendCL that is current on the calling thread. So methods that call HCCL take an
// acl.CurrentThread: an acl.Thread inside Context.Do, or an acl.BlockingThread inside Context.DoBlocking. Functions
// that make, prepare and close a communicator, or register memory, may block for long: call these functions in
// Context.DoBlocking. Put and Get only queue work. The methods of a Comm may be called from several threads. Methods of
// different Comms run in parallel, except that the process makes only one communicator at a time.
//
// # Two sequences
//
// Libraries since about CANN 8.3 register memory once, bind the memory to each communicator and prepare. Older
// libraries register memory with each communicator, exchange descriptors and enable access. This package offers the
// same calls for both: RegisterMemory, NewComm, Bind, Prepare, Put and Get, Close. Memory that is bound after Prepare
// can be used by this end only.
//
// # Completion, and the state after a failure
//
// Put and Get return when the batch is queued on the stream; acl.Stream.Notify reports when the batch has ended. A
// batch that failed in the call may have been queued in part, and a communicator whose stream was aborted keeps the
// requests that were posted. Therefore a communicator accepts no more work after any failure and must be closed; the
// next communicator needs a new name. Close reports whether the communicator is proven to be gone.
//
// # Ownership
//
// The caller that registers memory closes the Region, after all communicators that have the Region bound and before the
// memory is freed. The caller that makes a communicator closes the Comm. Library.Close fails while a region or
// communicator is open.
package comm
