// Package acl is a small Go face of AscendCL, the runtime of Huawei's NPUs: devices, streams, events,
// memory and copies. It declares the C interface itself and loads the vendor's library while the program
// runs, so it builds everywhere, links to nothing, and tells by name what is missing on a machine. Where
// it was built without cgo, Open says so and nothing else exists.
//
// # Threads
//
// AscendCL keeps the current context in thread-local storage; a call from a thread without one fails,
// and a goroutine moves between threads. So there is one operating-system thread for each Context, and
// what needs a context is a method of, or takes, a Thread, which Context.Do lends to one function:
//
//	err := ctx.Do(func(t *acl.Thread) error {
//		if err := stream.CopyAll(t, copies); err != nil {
//			return err
//		}
//		return stream.Notify(t, func(err error) { mailbox.Post(settled{err}) })
//	})
//
// A hand-over to another thread costs more than a call into the library, so put all that belongs
// together into one Do. A Thread that escapes from Do is refused before the library is called. Methods
// without a Thread may be called from anywhere.
//
// # Completion
//
// A call that puts work into a stream says only that it is queued. Stream.Notify tells when it has
// ended. A thread for each stream waits for that inside the library, or asks with growing pauses where the
// library cannot wait; neither spins. Only nil means that memory is settled. Timeout, Cancelled and all
// failures leave it in use: see each class.
//
// # Ownership
//
// Who makes a context, stream, event or memory closes it, children first: closing the parent refuses
// with ErrBusy and counts what is left. A Close that fails leaves the object open, to be closed again.
// Nothing closes by garbage collection. Memory of Go's is never registered; Upload and Download use it
// for the time of the call. AscendCL itself is never finalised, since the engine in our process may be
// using it: Library.Close gives back the one reference that Open took.
//
// # Errors
//
// An *Error is the library's answer: code, function, arguments and the library's own text. Ask for its
// class with errors.Is(err, acl.OutOfMemory) and the like. What the binding refuses by itself is one of the
// ErrX values; what could not be loaded is a *LoadError, and a function that an old library lacks a
// *MissingError, which is Unsupported as well.
package acl
