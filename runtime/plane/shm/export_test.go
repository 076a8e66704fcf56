package shm

// CheckProcessor returns an error unless shm may be opened on this kind of processor.
var CheckProcessor = checkProcessor

// SetProcessor lets shm believe that the process runs on another kind of processor, until the test calls the returned
// function.
func SetProcessor(arch string) (back func()) {
	was := processor
	processor = arch
	return func() { processor = was }
}
