// Command kvferry moves KV cache between the nodes of a disaggregated LLM serving system. It also has a demo that
// replays a request trace through real nodes, and a simulator that checks the protocol. The command "kvferry help"
// lists the subcommands. For example, "kvferry config check node.yaml" checks a node's configuration, and "kvferry node
// --config node.yaml" then runs the node.
//
// The exit code is 0 for success. It is 1 if the command found a defect (a wrong byte, a failing seed, a refused
// message, a configuration with problems) or could not do its work, and 2 if the command line is wrong. If a signal
// ended the command before it had done its work, the exit code is 128 plus the signal's number.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
)

func main() {
	if nixlproc.IsChild() { // This process was started by a node, to run libnixl.
		nixlproc.Main()
	}
	ctx, interrupt := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals) // A second signal kills the process, for example in a blocked write to a full pipe.
		interrupt(interruption{s.(syscall.Signal)})
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
