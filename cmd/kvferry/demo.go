package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
	"github.com/kvferry/kvferry/cmd/kvferry/internal/trace"
	"github.com/kvferry/kvferry/cmd/kvferry/traces"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

func newDemoCommand() *cobra.Command {
	var file, mode string
	var most int
	var asJSON, noCrash bool
	o := demo.Options{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Replay a request trace through real processes and verify every byte",
		Long: `demo starts one proxy, one prefill and two decode processes on this machine, with
real sockets and a real data plane, replays a request trace with KV bytes that
follow from their keys, and verifies every byte where it arrived. On the way it
kills a decode process as kill -9 does and starts it again, then the prefill. It
does so once for each mode: push, pull, pull-delay, where a decode reads chunks when
its engine fetches them, and pull-delay+offload, where they are read from copies in
host memory. A decode that delays must hold no more pages than two batches.

It exits with 1 if any byte was wrong, a request was lost or anything was left
pinned.`,
		Example: `  kvferry demo
  kvferry demo --mode pull-delay --json
  kvferry demo --trace conversation_trace.jsonl --requests 200 --plane tcp`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Concurrency < 1 || o.Concurrency > 64 {
				return usagef("--concurrency is %d; use 1 to 64", o.Concurrency)
			}
			if o.Speed < 0 {
				return usagef("--speed is %g; use 0 for no pauses, 1 for the trace's own time", o.Speed)
			}
			switch o.Plane {
			case "auto", "shm", "tcp":
			default:
				return usagef("--plane is %q; use auto, shm or tcp", o.Plane)
			}
			if most < 1 {
				return usagef("--requests is %d; play at least one", most)
			}
			modes, err := demo.ParseModes(mode)
			if err != nil {
				return usageError{err}
			}
			if o.Trace, o.Requests, err = readTrace(file, most); err != nil {
				return err
			}
			o.Crash, o.Log = !noCrash, cmd.ErrOrStderr()
			return playModes(cmd, o, modes, asJSON)
		},
	}
	addJSONFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&file, "trace", "", "a request trace, JSON lines; a small one of our own without it")
	cmd.Flags().IntVar(&most, "requests", 1000, "how many requests of the trace are played, from its start")
	cmd.Flags().StringVar(&mode, "mode", "all", "how chunks go: "+demo.ModeNames())
	cmd.Flags().StringVar(&o.Plane, "plane", "auto", "how pages travel: auto, shm or tcp")
	cmd.Flags().Float64Var(&o.Speed, "speed", 0, "speed of the trace's clock; 0 is as fast as it goes")
	cmd.Flags().IntVar(&o.Concurrency, "concurrency", 4, "requests in progress at a time")
	cmd.Flags().BoolVar(&noCrash, "no-crash", false, "kill no process on the way")
	return cmd
}

// playModes replays the trace once for each mode, each with processes of its own.
func playModes(cmd *cobra.Command, o demo.Options, modes []demo.Mode, asJSON bool) error {
	var all demo.Summary
	for _, o.Mode = range modes {
		finish := showReplayProgress(cmd.ErrOrStderr(), &o)
		report, err := demo.Run(cmd.Context(), o)
		finish()
		if err != nil {
			return err
		}
		all.Add(report)
		if asJSON {
			continue
		}
		if err := report.Print(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), all); err != nil {
			return err
		}
	}
	if !all.OK {
		return errFinding
	}
	return nil
}

func readTrace(file string, most int) (name string, requests []trace.Request, err error) {
	limits := trace.DefaultLimits()
	limits.Requests = most
	in := io.Reader(strings.NewReader(traces.Chat))
	name = "chat.jsonl (our own)"
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return "", nil, usageError{err}
		}
		defer f.Close()
		in, name = f, file
	}
	requests, err = trace.Read(name, in, limits)
	return name, requests, err
}

// showReplayProgress draws a bar where w is a terminal. What it returns ends the drawing.
func showReplayProgress(w io.Writer, o *demo.Options) (finish func()) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	p := mpb.New(mpb.WithOutput(w), mpb.WithWidth(48))
	bar := p.AddBar(int64(len(o.Requests)),
		mpb.PrependDecorators(decor.Name(string(o.Mode)+" "), decor.CountersNoUnit("%d/%d")),
		mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_MMSS)))
	o.Progress = func(done, _ int) { bar.SetCurrent(int64(done)) }
	return func() {
		bar.Abort(false) // Does nothing to a bar that is full.
		p.Wait()
	}
}

// newDemoProxyCommand is the demo's proxy process: it prints one line for each notification.
func newDemoProxyCommand() *cobra.Command {
	var port uint16
	cmd := &cobra.Command{
		Use:   "demo-proxy --port PORT",
		Short: "Be the demo's proxy: print one line for each request that ended",
		Long: `demo-proxy listens for the notifications of senders and prints each as a line of
JSON, until its input ends.`,
		Hidden:  true,
		Example: "  kvferry demo-proxy --port 8500",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serveProxy(cmd.Context(), port, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().Uint16Var(&port, "port", 0, "where to listen on this machine")
	return cmd
}

func serveProxy(ctx context.Context, port uint16, in io.Reader, out io.Writer) error {
	sink := make(notifications, notificationsMax)
	t, err := zmq.Config{}.Opener()([]control.Server{
		{Channel: effects.ChannelProxy, Addr: effects.Addr{Host: "127.0.0.1", Port: port}}}, sink)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in) // The end of the input ends the proxy.
		close(ended)
	}()
	lines := json.NewEncoder(out)
	err = lines.Encode(agent.Response{Code: effects.OK.String()})
	for serving := true; serving && err == nil; {
		select {
		case r := <-sink:
			err = printNotification(lines, r)
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
		return fmt.Errorf("a notification: %w", err)
	}
	return lines.Encode(map[string]any{"request": string(m.RequestID), "failed": m.Failed, "rank": m.Rank})
}

// notifications hands what arrives to the proxy; a full queue makes the transport wait, and so the
// senders. Nothing is left to complete when Shutdown is called, for the proxy asks for nothing.
type notifications chan *effects.Received

const notificationsMax = 1024

// Post implements control.Sink.
func (n notifications) Post(ev effects.Event) {
	if r, ok := ev.(*effects.Received); ok {
		n <- r
	}
}
