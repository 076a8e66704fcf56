// Command kvferry carries KV cache between the nodes of a disaggregated LLM serving system, shows how,
// and proves it in simulation. `kvferry help` lists what it does.
//
// It exits with 0 when all is well, 1 when it found something wrong (a wrong byte, a failing seed, a
// refused message, a configuration with problems) or could not do its work, 2 when it was called
// wrongly, and 128 and the signal's number when a signal ended it before it had done its work.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, interrupt := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals) // The second signal ends what the first could not, such as a write to a full pipe.
		interrupt(interruption{s.(syscall.Signal)})
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
