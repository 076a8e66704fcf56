// Command kvferry carries KV cache between the nodes of a disaggregated LLM serving system, shows how,
// and proves it in simulation. `kvferry help` lists what it does.
//
// It exits with 0 when all is well, 1 when it found something wrong (a wrong byte, a failing seed, a
// refused message, a configuration with problems) or could not do its work, and 2 when it was called
// wrongly.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // The second signal ends what the first could not, such as a write to a full pipe.
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
