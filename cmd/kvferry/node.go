package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

func newNodeCommand() *cobra.Command {
	var file string
	var rank int
	var commands bool
	cmd := &cobra.Command{
		Use:   "node --config FILE",
		Short: "Run a sender or receiver until it is told to stop",
		Long: `node runs one rank of a sender or receiver from a YAML file with LMCache's keys.
SIGTERM and SIGINT drain it: new work is refused, what is open ends, then it stops.

With --commands another program drives it over standard input and output, one
JSON object a line, with KV bytes that follow from their keys; the end of the
input stops it as well. This is how the demo drives its processes.`,
		Example: `  kvferry node --config receiver.yaml
  echo '{"id":1,"op":"stats"}' | kvferry node --config receiver.yaml --commands`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("name the configuration with --config")
			}
			data, err := os.ReadFile(file)
			if err != nil {
				return usageError{err}
			}
			cfg, err := config.Parse(file, data, os.LookupEnv)
			if err != nil {
				return usageError{err}
			}
			log := newLogger(cmd.ErrOrStderr(), cfg.Log)
			for _, n := range cfg.Notes {
				log.Warn("configuration", "note", n.String())
			}
			n, err := openNode(cmd.Context(), cfg, rank, log)
			if err != nil {
				return err
			}
			id := n.Incarnation()
			log.Info("serving", "role", cfg.Role, "incarnation", fmt.Sprintf("%x", id[:]), "pages", cfg.Pages, "page_bytes", cfg.PageBytes)
			var served error
			if commands {
				served = agent.Serve(cmd.Context(), n, cmd.InOrStdin(), cmd.OutOrStdout())
			} else {
				<-cmd.Context().Done()
			}
			// The context has ended, and closing has bounds of its own.
			closed := n.Close(context.WithoutCancel(cmd.Context()))
			log.Info("stopped", "err", closed)
			return errors.Join(served, closed)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the node's configuration, YAML")
	cmd.Flags().IntVar(&rank, "rank", 0, "which tensor-parallel rank of the configuration it is")
	cmd.Flags().BoolVar(&commands, "commands", false, "take commands from standard input, JSON lines")
	return cmd
}

func newLogger(w io.Writer, c config.Log) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.Level}
	if c.JSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// openNode is where a node's parts meet: what the runtime does not know by itself is named here.
func openNode(ctx context.Context, cfg *config.Config, rank int, log *slog.Logger) (*runtime.Node, error) {
	served, err := serveHostMemory(cfg, rank)
	if err != nil {
		return nil, err
	}
	return runtime.Open(ctx, cfg, append(served, runtime.WithRank(rank), runtime.WithLogger(log), runtime.WithControl(controlConfig(cfg).Opener()))...)
}

// serveHostMemory names the planes of a pool in host memory.
func serveHostMemory(cfg *config.Config, rank int) ([]runtime.Option, error) {
	if cfg.NeedsNPU() {
		return nil, usagef("pd_buffer_device is %v and transfer_channel %v: this build has no driver for NPUs; set pd_buffer_device: cpu and transfer_channel: auto", cfg.Device, cfg.Channel)
	}
	tcpAddr, ok := cfg.TCPEndpoint(rank)
	if !ok {
		return nil, usagef("data.tcp_port has no port for rank %d; add it", rank)
	}
	return []runtime.Option{
		runtime.WithPlane(shm.Name, shm.Config{Dir: cfg.Data.SHMDir, Copiers: int(cfg.Data.CopyThreads), NonTemporalBytes: cfg.Data.NonTemporalBytes}.Open),
		runtime.WithPlane(tcp.Name, tcp.Config{Host: tcpAddr.Host, Port: tcpAddr.Port, Streams: int(cfg.Data.TCPStreams)}.Open),
	}, nil
}

func controlConfig(cfg *config.Config) zmq.Config {
	return zmq.Config{
		MaxConns:     int(cfg.Bounds.Conns),
		MaxMessage:   cfg.Limits.MessageBytes,
		Reconnect:    cfg.Link.BackoffMin,
		ReconnectMax: cfg.Link.BackoffMax,
	}
}
