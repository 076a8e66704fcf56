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
	var file, reportDir string
	var rank int
	var commands bool
	cmd := &cobra.Command{
		Use:   "node --config FILE",
		Short: "Run a sender, a receiver, a node with both roles, or a node that shares",
		Long: `node runs one rank of a sender, of a receiver, of a node with both roles, or of a node
that shares its cache. The configuration is a YAML file with LMCache's keys.

SIGTERM and SIGINT drain the node: it refuses new work, waits until the work in progress
has ended, for at most pd_shutdown_timeout_sec seconds, and stops. Each second it logs
what it waits for. A second signal ends the node at once.

SIGHUP makes the node read its configuration and the files of security again. The log says
which changed values are in force (docs/configuration.md marks these keys), and which need
a restart.

With --commands, a program drives the node over standard input and output, with one JSON
object per line. The KV bytes of a chunk are then a function of the chunk's key. The end
of the input stops the node as well. The demo drives its processes in this way.

With --reports, a failed assertion writes a report into that directory, peers and the
program that drives the node are notified, and the node exits with code 1. Without
--reports, a failed assertion is a panic.

The command has no engine, so it moves no KV of a real model; for that, embed package
runtime in a program, or run kvferry agent. A configuration that leaves the layout of
chunks to an engine must give the layout here: check it with kvferry config check --node.`,
		Example: `  kvferry node --config receiver.yaml
  echo '{"id":1,"op":"stats"}' | kvferry node --config receiver.yaml --commands`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("--config is required: the path of the configuration file")
			}
			source, err := openNodeFile(cmd, file)
			if err != nil {
				return err
			}
			cfg, log := source.config, source.log
			n, err := openNode(cmd.Context(), cfg, rank, log, containmentOptions(reportDir)...)
			if err != nil && commands {
				// The program that sends the commands receives the error as the first response.
				err = errors.Join(err, agent.WriteRefusal(cmd.OutOrStdout(), err))
			}
			if err != nil {
				return err
			}
			// A process that says that it serves takes signals: before, a SIGHUP would end it.
			defer source.reloadOnHangup(n)()
			defer saveOnSignal(n, log)()
			id := n.Incarnation()
			log.Info("serving", "role", cfg.Role, "incarnation", uuid.UUID(id).String(), "pages", cfg.Pages, "page_bytes",
				cfg.PageBytes)
			stopOperators, _, err := n.serveOperators()
			if err != nil {
				return errors.Join(err, n.closeWithNPU(context.WithoutCancel(cmd.Context())))
			}
			defer stopOperators()
			serveErr := n.serveUntilDone(cmd, commands)
			log.Info("draining", "at_most", n.DrainTimeout(), "remedy", "a second signal ends it at once")
			// The context has ended; closing has time limits of its own.
			closeErr := n.closeWithNPU(context.WithoutCancel(cmd.Context()))
			log.Info("stopped", "err", closeErr)
			return errors.Join(serveErr, closeErr)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the node's configuration, YAML")
	cmd.Flags().IntVar(&rank, "rank", 0, "the tensor-parallel rank of this node in the configuration")
	cmd.Flags().StringVar(&reportDir, "reports", "", "the directory for the reports of failed assertions")
	cmd.Flags().BoolVar(&commands, "commands", false, "read commands from standard input, one JSON object per line")
	return cmd
}

// A nodeFile is the configuration of a node that runs without an engine's process, and the node's log.
type nodeFile struct {
	name   string
	config *config.Config
	log    *slog.Logger
	level  *slog.LevelVar
}

// openNodeFile reads a configuration and logs its notes.
func openNodeFile(cmd *cobra.Command, name string) (f nodeFile, err error) {
	f.name = name
	if f.config, err = f.read(); err != nil {
		return f, err
	}
	f.level = new(slog.LevelVar)
	f.level.Set(f.config.Log.Level)
	f.log = newLogger(cmd.ErrOrStderr(), f.level, f.config.Log.JSON)
	for _, n := range append(config.StrayVariables(os.Environ()), f.config.Notes...) {
		f.log.Warn("configuration", "note", n.String())
	}
	return f, nil
}

func (f *nodeFile) read() (*config.Config, error) {
	data, err := os.ReadFile(f.name)
	if err != nil {
		return nil, usageError{err}
	}
	cfg, err := config.Parse(f.name, data, os.LookupEnv)
	if err != nil {
		return nil, usageError{err}
	}
	if missing := cfg.CheckStandalone(); len(missing) > 0 {
		return nil, usagef("%v", missing[0])
	}
	return cfg, nil
}

// reloadOnHangup makes SIGHUP put changes of the file, and of the files of cfg.Security, into force at a node, until the
// returned function is called.
func (f *nodeFile) reloadOnHangup(n *node) (stop func()) {
	r := reloader[*config.Config]{started: f.config, current: f.config, read: f.read, log: f.log, apply: func(c *config.Config) {
		f.level.Set(c.Log.Level)
		n.Reload(c)
	}}
	return reloadOnHangup(func() {
		n.ReloadSecurity()
		r.reload()
	})
}

// containmentOptions makes a failed assertion write a report into the folder. With an empty folder, the assertion
// panics.
func containmentOptions(reportDir string) []runtime.Option {
	if reportDir == "" {
		return nil
	}
	return []runtime.Option{runtime.WithFailureContainment(runtime.FailureContainment{ReportDir: reportDir})}
}

// serveUntilDone runs until the context ends or the node fails. It returns an error only if the node fails.
func (n *node) serveUntilDone(cmd *cobra.Command, commands bool) error {
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

// newLogger returns a logger that asks for its level at each record.
func newLogger(w io.Writer, level slog.Leveler, json bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if json {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
