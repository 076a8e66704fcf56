package comm

// DescMax is the most descriptors that any library takes in one batch.
const DescMax = 256

// A Desc is one stretch of a batch: Bytes bytes at Local, an address of this process, and at Remote, an address
// of the peer's as the peer has it.
type Desc struct {
	Local, Remote uintptr
	Bytes         uint64
}
