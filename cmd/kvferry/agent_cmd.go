package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/attach"
)

func newAgentCommand() *cobra.Command {
	var file, reports string
	var rank int
	var to attach.Config
	cmd := &cobra.Command{
		Use:   "agent --config FILE --socket PATH",
		Short: "Run a node that engines of other processes attach to",
		Long: `agent runs one rank, as kvferry node does, and lets engines of this host attach to it
over a Unix socket: they map its pool, write and read chunks in place, and call what
package runtime offers (docs/protocol-agent.md). The Python package kvferry is such an
engine's end. Only processes of the same user may attach, and root's.

What an engine holds is its own until it gives it back or its process ends. When it
serves it prints one line of JSON: where engines attach, and where peers do.

SIGTERM and SIGINT drain it: engines that are attached may end what they do, for
pd_shutdown_timeout_sec at the most. A second signal ends it at once.`,
		Example: `  kvferry agent --config receiver.yaml --socket /run/kvferry/agent.sock`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" || to.Path == "" {
				return usagef("name the configuration with --config, and the socket with --socket")
			}
			cfg, log, err := readNode(cmd, file)
			if err != nil {
				return err
			}
			to.Log = log
			n, err := openNode(cmd.Context(), cfg, rank, log, append(failAlone(reports), runtime.WithAttachable())...)
			if err != nil {
				return err
			}
			to.Node, to.Limits = n.Node.Node, &cfg.Limits
			to.Poll = cfg.Poll
			served := serveEngines(cmd, n, to, cfg.DrainTimeout)
			// The context has ended; closing has time limits of its own.
			return errors.Join(served, n.close(context.WithoutCancel(cmd.Context())))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the node's configuration, YAML")
	cmd.Flags().StringVar(&to.Path, "socket", "", "where engines attach: the path of a Unix socket")
	cmd.Flags().IntVar(&rank, "rank", 0, "which tensor-parallel rank of the configuration it is")
	cmd.Flags().StringVar(&reports, "reports", "", "the directory where an assertion that fails is reported")
	cmd.Flags().IntVar(&to.Engines, "engines", 64,
		"how many engines may be attached at a time; of one process a quarter of them, or four if that is more")
	cmd.Flags().IntVar(&to.Window, "window", 256, "how many calls of one engine may be open at a time")
	cmd.Flags().IntVar(&to.CallBytes, "call-bytes", 128<<20,
		"how many bytes the open calls of one engine may take, about 600 for each key")
	cmd.Flags().IntVar(&to.Holdings, "holdings", 4096, "how many handles one engine may hold at a time")
	return cmd
}

// serveEngines serves engines until the context ends, and then drains. It returns an error if the node fails.
func serveEngines(cmd *cobra.Command, n *node, to attach.Config, patience time.Duration) error {
	s, err := attach.Serve(to)
	if err != nil {
		return err
	}
	line := map[string]any{"socket": s.Path(), "life": uuid.UUID(n.Incarnation()).String(), "sides": n.Sides(),
		"page_bytes": n.PageBytes()}
	for _, server := range n.Servers() {
		line[server.Channel.String()+"_port"] = server.Addr.Port
	}
	if err := json.NewEncoder(cmd.OutOrStdout()).Encode(line); err != nil {
		return errors.Join(err, s.Close(context.WithoutCancel(cmd.Context())))
	}
	var failed error
	select {
	case <-cmd.Context().Done():
	case <-n.Failed():
		failed = n.Err()
	}
	to.Log.Info("draining", "engines", s.Counts().Engines, "remedy", "a second signal ends it at once")
	if failed == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), patience)
		defer cancel()
		if err := s.Drain(ctx); err != nil {
			to.Log.Warn("engines have not detached", "err", err)
		}
	}
	return errors.Join(failed, s.Close(context.WithoutCancel(cmd.Context())))
}
