package comm

// DescMax is the largest number of descriptors that any library accepts in one batch.
const DescMax = 256

// A Desc is a range of a batch: Bytes bytes at Local, an address of this process, and at Remote, an address in the
// peer's process.
type Desc struct {
	Local, Remote uintptr
	Bytes         uint64
}
