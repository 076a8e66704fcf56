package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

const failingNode = `enable_pd: true
pd_role: sender
transfer_channel: shm
chunk_size: 16
pd_buffer_size: 65536
pd_buffer_device: cpu
pd_skip_proxy_notification: true
extra_config: {kvferry: {layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}}}
`

// A node with a failed assertion stops serving, with an error that names the report. A program that drives the node
// receives all responses.
func TestANodeThatFailsStops(t *testing.T) {
	cfg, err := config.Parse("test", []byte(failingNode), nil)
	if err != nil {
		t.Fatal(err)
	}
	var sink plane.Sink
	dir := t.TempDir()
	opened, err := runtime.Open(t.Context(), cfg, runtime.WithControl(zmqConfig(cfg).Opener()),
		runtime.WithFailureContainment(runtime.FailureContainment{ReportDir: dir}),
		runtime.WithPlane(shm.Name, func(ctx context.Context, env plane.Env) (plane.Plane, error) {
			sink = env.Sink
			return shm.Open(ctx, env)
		}))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Node: agent.Node{Node: opened, Engine: agent.InProcess{}}}
	for _, commands := range []bool{true, false} { // In the second iteration, the node has already failed.
		in, give := io.Pipe()
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetIn(in)
		cmd.SetOut(&out)
		sink.Post(&effects.SendDone{Corr: 1 << 40}) // No send has this correlation.
		err = n.serveUntilDone(cmd, commands)
		_ = give.Close()
		var f *runtime.Failure
		said := "BUG: an effect was completed twice"
		if !errors.As(err, &f) || !strings.Contains(err.Error(), said) || !strings.HasPrefix(f.Report, dir) {
			t.Fatalf("it ended with %v", err)
		}
		if _, err := os.Stat(f.Report); err != nil {
			t.Error(err)
		}
	}
	if code := runtime.CodeOf(n.closeWithNPU(t.Context())); code != effects.Failed {
		t.Errorf("close: %v", code)
	}
}
