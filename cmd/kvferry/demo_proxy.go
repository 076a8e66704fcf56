package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/secure"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// newDemoProxyCommand returns the command of the demo's proxy process, which prints a line for each notification.
func newDemoProxyCommand() *cobra.Command {
	var port uint16
	var certs string
	cmd := &cobra.Command{
		Use:   "demo-proxy --port PORT",
		Short: "Run the demo's proxy, which prints a line for each request that ended",
		Long: `demo-proxy listens for the notifications of senders and prints each notification as a
line of JSON, until the standard input ends.`,
		Hidden:  true,
		Example: "  kvferry demo-proxy --port 8500",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serveDemoProxy(cmd.Context(), port, certs, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().Uint16Var(&port, "port", 0, "the TCP port on which to listen")
	cmd.Flags().StringVar(&certs, "certs", "", "the folder of a certificate that kvferry certs made (default: no TLS)")
	return cmd
}

func serveDemoProxy(ctx context.Context, port uint16, certs string, in io.Reader, out io.Writer) error {
	sink := make(notifications, notificationsMax)
	security := config.Security{}
	if certs != "" {
		in := func(file string) string { return filepath.Join(certs, file) }
		security = config.Security{Mode: secure.Strict, Cert: in(authority.CertFile), Key: in(authority.KeyFile),
			CA: in(authority.CAFile), Policy: in(authority.PolicyFile)}
	}
	guard, err := security.Open(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer guard.Close()
	t, err := zmq.Listen(zmq.Config{Guard: guard}, []control.Server{
		{Channel: effects.ChannelProxy, Addr: effects.Addr{Host: "127.0.0.1", Port: port}}}, sink)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in) // The end of the input ends the proxy.
		close(ended)
	}()
	encoder := json.NewEncoder(out)
	err = encoder.Encode(agent.Response{Code: effects.OK.String()})
	for serving := true; serving && err == nil; {
		select {
		case r := <-sink:
			err = printNotification(encoder, r)
		case <-ended:
			serving = false
		case <-ctx.Done():
			serving = false
		}
	}
	return errors.Join(err, t.Shutdown(context.WithoutCancel(ctx)))
}

func printNotification(lines *json.Encoder, r *effects.Received) error {
	var m protocol.ProxyNotif
	limits := protocol.DefaultLimits()
	if err := m.Decode(r.Body, &limits); err != nil {
		return fmt.Errorf("a sender's notification cannot be decoded: %w", err)
	}
	return lines.Encode(map[string]any{"request": string(m.RequestID), "failed": m.Failed, "rank": m.Rank})
}

// notifications queues the received messages for the proxy. If the queue is full, the transport waits, and so do the
// senders. The proxy sends no requests, so no completions arrive after Shutdown.
type notifications chan *effects.Received

const notificationsMax = 1024

// Post implements control.Sink.
func (n notifications) Post(ev effects.Event) {
	if r, ok := ev.(*effects.Received); ok {
		n <- r
	}
}
