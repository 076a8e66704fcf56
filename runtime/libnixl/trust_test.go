package libnixl

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckReach(t *testing.T) {
	t.Setenv(devicesVariable, "")
	for host, local := range map[string]bool{"127.0.0.1": true, "127.8.8.8": true, "::1": true, "::ffff:127.0.0.1": true,
		"localhost": true, "": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "fd00::1": false, "node-7": false,
		"127.0.0.1.example.org": false} {
		err := CheckTrusted(host, false)
		if local != (err == nil) || local != IsLoopback(host) {
			t.Errorf("%q: %v", host, err)
		}
		if err != nil && (!errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), "set nixl.trusted_network: true") ||
			!strings.Contains(err.Error(), `"`+host+`"`)) {
			t.Errorf("%q: %v", host, err)
		}
		if err := CheckTrusted(host, true); err != nil {
			t.Errorf("%q is trusted, and %v", host, err)
		}
	}
	t.Setenv(devicesVariable, "eth0")
	if err := CheckTrusted("127.0.0.1", false); err == nil || !strings.Contains(err.Error(), `UCX_NET_DEVICES is "eth0"`) {
		t.Errorf("UCX goes by another device, and %v", err)
	}
	if err := CheckTrusted("127.0.0.1", true); err != nil {
		t.Error(err)
	}
	t.Setenv(devicesVariable, loopback)
	if err := CheckTrusted("127.0.0.1", false); err != nil {
		t.Error(err)
	}
}

func TestUCXParams(t *testing.T) {
	for trusted, want := range map[bool]string{false: ",TLS=tcp,NET_DEVICES=lo", true: ",TLS=tcp"} {
		if got := UCXParams("tcp", trusted)["engine_config"]; got != "KEEPALIVE_INTERVAL=inf"+want {
			t.Errorf("trusted %v: %q", trusted, got)
		}
	}
}
