package runtime

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/secure"
)

// noGateway is a gateway that is never opened.
type noGateway struct{}

func (noGateway) Name() string                                    { return "vllm" }
func (noGateway) WrapControl(inner control.Opener) control.Opener { return inner }
func (noGateway) Open(context.Context, plane.Env) (plane.Plane, error) {
	panic("BUG: a gateway that was refused is opened")
}

// Engines of vLLM have no certificates, so a strict node has no gateway.
func TestStrictNodeHasNoGateway(t *testing.T) {
	open := func(context.Context, plane.Env) (plane.Plane, error) { return nil, nil }
	for mode, want := range map[secure.Mode]string{secure.Permissive: "", secure.Strict: "connect to the gateway without TLS"} {
		cfg := &config.Config{Channel: config.ChannelNIXL, Pages: 1, PageBytes: 4096}
		cfg.Register.Enabled, cfg.Security.Mode = true, mode
		control := func(control.Env) (control.Transport, error) { return nil, nil }
		o := options{gateway: noGateway{}, control: control, log: slog.New(slog.DiscardHandler), planes: []namedPlane{{"nixl", open}}}
		switch err := o.validate(cfg); {
		case want == "" && err != nil:
			t.Errorf("%v: %v", mode, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%v: %v; want %q", mode, err, want)
		}
	}
}
