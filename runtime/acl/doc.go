// Package acl is a Go binding of AscendCL, the runtime of Huawei's NPUs: devices, streams, events, memory and copies.
// The package declares the C interface itself and loads the vendor's library while the program runs. So the program
// builds everywhere, links to nothing, and can name the functions that a machine's library lacks. In a build without
// cgo, Open returns an error and nothing else can be used.
//
// # Threads
//
// AscendCL keeps the current context in thread-local storage. A call from a thread without a context fails, and a
// goroutine moves between threads. So each Context has an operating-system thread, and every function that needs a
// context is a method of Thread or has a Thread as a parameter. Context.Do passes the Thread to a function:
//
//	err := ctx.Do(func(t *acl.Thread) error {
//		if err := stream.CopyAll(t, copies); err != nil {
//			return err
//		}
//		return stream.Notify(t, func(err error) { mailbox.Post(settled{err}) })
//	})
//
// Switching to another thread costs more than a call of the library, so put everything that belongs together into a
// single Do. A Thread that is used outside of the function that received it is refused before the library is called.
// Methods without a Thread may be called from anywhere.
//
// # Completion
//
// A call that puts work into a stream only queues it. Stream.Notify reports when the work has ended. Each stream has a
// thread that waits inside the library, or polls with growing pauses if the library cannot wait; neither spins. Only a
// nil result means that memory is settled (nothing touches it any more). After Timeout, Cancelled and all failures the
// memory is still in use: see each class.
//
// # Ownership
//
// The caller that makes a context, stream, event or memory closes it, children first: closing the parent fails with
// ErrBusy and says what is left. After a Close that fails, the object is still open and can be closed again. Nothing is
// closed by garbage collection. Go's memory is never registered; Upload and Download use Go's memory during the call.
// AscendCL itself is never finalized, because the engine in the same process may be using AscendCL: Library.Close gives
// back the reference that Open took.
//
// # Errors
//
// An *Error is a failed call: code, function, arguments and the library's own text. Test its class with errors.Is(err,
// acl.OutOfMemory) and the like. Errors of the binding itself are the ErrX values. A *LoadError says what could not be
// loaded. A *MissingError is a function that an old library lacks; its class is Unsupported.
package acl
