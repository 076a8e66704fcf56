package shm

// Ordered says whether shm may be opened on a kind of processor.
var Ordered = ordered

// On lets shm take the process to run on another kind of processor, until the test calls back.
func On(arch string) (back func()) {
	was := processor
	processor = arch
	return func() { processor = was }
}
