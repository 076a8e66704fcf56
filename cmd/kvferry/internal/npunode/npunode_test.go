package npunode

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/hccn"
	"github.com/kvferry/kvferry/runtime/config"
)

func parse(t *testing.T, hccl string) *config.Config {
	t.Helper()
	text := "enable_pd: true\npd_role: sender\npd_skip_proxy_notification: true\npd_buffer_size: 64MiB\n" +
		"pd_buffer_device: npu\ntransfer_channel: hccl\n" +
		"extra_config:\n  kvferry:\n    hccl: {" + hccl + "}\n"
	cfg, err := config.Parse("node.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestServerID(t *testing.T) {
	if got, err := serverID(parse(t, "server_id: node-a")); err != nil || got != "node-a" {
		t.Errorf("given: %q, %v", got, err)
	}
	// All nodes of a host must have the same name, and two hosts must have different names.
	boot, err := os.ReadFile(bootID)
	if err != nil {
		t.Skip(err)
	}
	if got, err := serverID(parse(t, "window: 2")); err != nil || got != strings.TrimSpace(string(boot)) || len(got) > 64 {
		t.Errorf("derived: %q, %v", got, err)
	}
}

func TestDeviceAddress(t *testing.T) {
	cfg := parse(t, "device_ip: [192.0.2.1, 192.0.2.2], device_port: [16700, 16701]")
	for rank, want := range []string{"192.0.2.1", "192.0.2.2"} {
		if got, port, err := deviceAddress(cfg, rank, 5); err != nil || got.String() != want || port != uint16(16700+rank) {
			t.Errorf("rank %d: %v port %d, %v", rank, got, port, err)
		}
	}
	if _, _, err := deviceAddress(cfg, 2, 5); !errors.Is(err, ErrSetting) ||
		!strings.Contains(err.Error(), "device_port") {
		t.Errorf("a rank without port: %v", err)
	}
	if _, port, err := deviceAddress(parse(t, "device_ip: [192.0.2.1]"), 0, 5); err != nil ||
		port != config.DevicePortDefault {
		t.Errorf("no port: %d, %v", port, err)
	}
	if _, _, err := deviceAddress(parse(t, "device_ip: [192.0.2.1]"), 1, 5); !errors.Is(err, ErrSetting) ||
		!strings.Contains(err.Error(), "device_ip") {
		t.Errorf("a rank without address: %v", err)
	}
	const none = 4711
	if _, _, err := deviceAddress(parse(t, "window: 2"), 0, none); !errors.Is(err, ErrSetting) ||
		!strings.Contains(err.Error(), hccn.File) {
		t.Errorf("an NPU that %s has not: %v", hccn.File, err)
	}
}
