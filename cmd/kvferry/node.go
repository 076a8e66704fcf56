package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

func newNodeCommand() *cobra.Command {
	var file, reports string
	var rank int
	var commands bool
	cmd := &cobra.Command{
		Use:   "node --config FILE",
		Short: "Run a sender, a receiver or both until it is told to stop",
		Long: `node runs one rank of a sender, receiver or both, or of a node that shares, from a
YAML file with LMCache's keys.
SIGTERM and SIGINT drain it: new work is refused, what is open ends, then it stops,
after pd_shutdown_timeout_sec at the latest. A second signal ends it at once.

With --commands another program drives it over standard input and output, one
JSON object a line, with KV bytes that follow from their keys; the end of the
input stops it as well. This is how the demo drives its processes.

With --reports an assertion that fails in the node is reported to a file of that
directory, peers and whoever gives the commands are told, and the node exits
with 1. Without it the assertion is a panic.

It has no engine, so KV of a model comes to nobody by this command: a program that
embeds package runtime moves its own. What the file leaves to an engine, the layout
of chunks, must be in it here: kvferry config check --node FILE.`,
		Example: `  kvferry node --config receiver.yaml
  echo '{"id":1,"op":"stats"}' | kvferry node --config receiver.yaml --commands`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("name the configuration with --config")
			}
			cfg, log, err := readNode(cmd, file)
			if err != nil {
				return err
			}
			n, err := openNode(cmd.Context(), cfg, rank, log, failAlone(reports)...)
			if err != nil && commands {
				// The program that sends the commands receives the error as the first response.
				err = errors.Join(err, agent.Refuse(cmd.OutOrStdout(), err))
			}
			if err != nil {
				return err
			}
			id := n.Incarnation()
			log.Info("serving", "role", cfg.Role, "incarnation", uuid.UUID(id).String(), "pages", cfg.Pages, "page_bytes",
				cfg.PageBytes)
			served := n.serve(cmd, commands)
			log.Info("draining", "at_most", cfg.DrainTimeout, "remedy", "a second signal ends it at once")
			// The context has ended; closing has time limits of its own.
			closed := n.close(context.WithoutCancel(cmd.Context()))
			log.Info("stopped", "err", closed)
			return errors.Join(served, closed)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the node's configuration, YAML")
	cmd.Flags().IntVar(&rank, "rank", 0, "which tensor-parallel rank of the configuration it is")
	cmd.Flags().StringVar(&reports, "reports", "", "the directory where an assertion that fails is reported")
	cmd.Flags().BoolVar(&commands, "commands", false, "take commands from standard input, JSON lines")
	return cmd
}

// readNode reads the configuration of a node that runs without an engine's process, and logs the configuration's notes.
func readNode(cmd *cobra.Command, file string) (*config.Config, *slog.Logger, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, usageError{err}
	}
	cfg, err := config.Parse(file, data, os.LookupEnv)
	if err != nil {
		return nil, nil, usageError{err}
	}
	if missing := cfg.CheckStandalone(); len(missing) > 0 {
		return nil, nil, usagef("%v", missing[0])
	}
	log := newLogger(cmd.ErrOrStderr(), cfg.Log)
	for _, n := range append(config.StrayVariables(os.Environ()), cfg.Notes...) {
		log.Warn("configuration", "note", n.String())
	}
	return cfg, log, nil
}

// failAlone makes a failed assertion write a report into the folder. With an empty folder, the assertion panics.
func failAlone(reports string) []runtime.Option {
	if reports == "" {
		return nil
	}
	return []runtime.Option{runtime.WithFailureContainment(runtime.FailureContainment{ReportDir: reports})}
}

// serve runs until the context ends or the node fails. It returns an error only if the node fails.
func (n *node) serve(cmd *cobra.Command, commands bool) error {
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	go func() {
		select {
		case <-n.Failed():
			stop()
		case <-ctx.Done():
		}
	}()
	var err error
	if commands {
		err = agent.Serve(ctx, n.Node, cmd.InOrStdin(), cmd.OutOrStdout())
	} else {
		<-ctx.Done()
	}
	return errors.Join(err, n.Err())
}

func newLogger(w io.Writer, c config.Log) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.Level}
	if c.JSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
