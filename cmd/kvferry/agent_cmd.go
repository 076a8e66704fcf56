package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/attach"
	"github.com/kvferry/kvferry/runtime/operator"
)

func newAgentCommand() *cobra.Command {
	var file, reportDir string
	var rank int
	var attachConfig attach.Config
	cmd := &cobra.Command{
		Use:   "agent --config FILE --socket PATH",
		Short: "Run a node to which engines in other processes attach",
		Long: `agent runs one rank, as kvferry node does, and lets engine processes on this host attach
over a Unix socket. An attached engine maps the agent's pool, writes and reads chunks in
place, and can call the functions of package runtime (docs/protocol-agent.md). The Python
package kvferry is a client for engines. Only processes of the same user and of root may
attach.

An engine keeps its pages and handles until it releases them or its process ends. When the
agent serves, it prints one line of JSON with the socket for engines and the ports for peers.

SIGTERM and SIGINT drain the agent: attached engines may finish their work, for at most
pd_shutdown_timeout_sec seconds. A second signal ends the agent at once.

SIGHUP makes the agent read its configuration and the files of security again. The log says
which changed values are in force (docs/configuration.md marks these keys), and which need
a restart.`,
		Example: `  kvferry agent --config receiver.yaml --socket /run/kvferry/agent.sock`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" || attachConfig.Path == "" {
				return usagef("--config and --socket are required: the configuration file and the path of the socket")
			}
			source, err := openNodeFile(cmd, file)
			if err != nil {
				return err
			}
			cfg, log := source.config, source.log
			attachConfig.Log = log
			n, err := openNode(cmd.Context(), cfg, rank, log, append(containmentOptions(reportDir), runtime.WithAttachable())...)
			if err != nil {
				return err
			}
			attachConfig.Node, attachConfig.Limits = n.Node.Node, &cfg.Limits
			attachConfig.Poll = cfg.Poll
			defer source.reloadOnHangup(n)()
			defer saveOnSignal(n, log)()
			serveErr := serveEngines(cmd, n, attachConfig)
			// The context has ended; closing has time limits of its own.
			return errors.Join(serveErr, n.closeWithNPU(context.WithoutCancel(cmd.Context())))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the node's configuration, YAML")
	cmd.Flags().StringVar(&attachConfig.Path, "socket", "", "the path of the Unix socket to which engines attach")
	cmd.Flags().IntVar(&rank, "rank", 0, "the tensor-parallel rank of this node in the configuration")
	cmd.Flags().StringVar(&reportDir, "reports", "", "the directory for the reports of failed assertions")
	cmd.Flags().IntVar(&attachConfig.Engines, "engines", 64,
		"the maximum number of attached engines; one process may have a quarter of them, but at least four")
	cmd.Flags().IntVar(&attachConfig.Window, "window", 256, "the maximum number of calls of one engine in progress")
	cmd.Flags().IntVar(&attachConfig.CallBytes, "call-bytes", 128<<20,
		"the maximum memory for the calls of one engine in progress, about 600 bytes for each key")
	cmd.Flags().IntVar(&attachConfig.Holdings, "holdings", 4096, "the maximum number of handles of one engine")
	return cmd
}

// serveEngines serves engines until the context ends, and then drains. It returns an error if the node fails.
func serveEngines(cmd *cobra.Command, n *node, attachConfig attach.Config) error {
	s, err := attach.Serve(attachConfig)
	if err != nil {
		return err
	}
	stopOperators, at, err := n.serveOperators(operator.Agent(s))
	if err != nil {
		return errors.Join(err, s.Close(context.WithoutCancel(cmd.Context())))
	}
	defer stopOperators()
	line := map[string]any{"socket": s.Path(), "life": uuid.UUID(n.Incarnation()).String(), "sides": n.Sides(),
		"page_bytes": n.PageBytes()}
	for _, server := range n.Servers() {
		line[server.Channel.String()+"_port"] = server.Addr.Port
	}
	if at != nil {
		line["operator"] = at.String()
	}
	if err := json.NewEncoder(cmd.OutOrStdout()).Encode(line); err != nil {
		return errors.Join(err, s.Close(context.WithoutCancel(cmd.Context())))
	}
	var nodeErr error
	select {
	case <-cmd.Context().Done():
	case <-n.Failed():
		nodeErr = n.Err()
	}
	attachConfig.Log.Info("draining", "engines", s.Counts().Engines, "remedy", "a second signal ends it at once")
	if nodeErr == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), n.DrainTimeout())
		defer cancel()
		if err := s.Drain(ctx); err != nil {
			attachConfig.Log.Warn("some engines have not detached in time", "err", err)
		}
	}
	return errors.Join(nodeErr, s.Close(context.WithoutCancel(cmd.Context())))
}
