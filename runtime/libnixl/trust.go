package libnixl

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
)

// ErrUntrusted says that agents would be reachable over a network that the configuration does not declare as trusted.
var ErrUntrusted = errors.New("libnixl: the network is not trusted")

const (
	// trustKey is the configuration key that declares the network as trusted.
	trustKey = "nixl.trusted_network"
	// devicesVariable is the environment variable that overrides an agent's choice of UCX's network devices.
	devicesVariable = "UCX_NET_DEVICES"
	loopback        = "lo"
)

// CheckTrusted returns an error that wraps ErrUntrusted unless the network is trusted or host is a loopback address.
// Over the tcp transport of UCX a peer can read and write all memory of a process that has an agent, whatever the agent
// registered: UCX carries out requests without a check of the address. So only hosts that may access all this memory
// may reach an agent.
func CheckTrusted(host string, trusted bool) error {
	if trusted {
		return nil
	}
	if !IsLoopback(host) {
		return fmt.Errorf("%w: %s is false, and %q is not a loopback address: a process that reaches an agent over UCX's tcp can read and "+
			"write all memory of the agent's process; give an address such as 127.0.0.1, or, if only hosts and users that may do "+
			"that reach this host, set %s: true", ErrUntrusted, trustKey, host, trustKey)
	}
	if devices := os.Getenv(devicesVariable); devices != "" && devices != loopback {
		return fmt.Errorf("%w: %s is false, but the variable %s is %q and overrides the loopback device: unset the variable, or "+
			"set %s: true", ErrUntrusted, trustKey, devicesVariable, devices, trustKey)
	}
	return nil
}

// IsLoopback reports whether a host is a loopback address, or localhost.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// UCXParams returns parameters that restrict an agent's UCX to transports, in the form of UCX_TLS. If transports is
// empty, UCX chooses. UCX listens at all addresses of the host; unless the network is trusted, the parameters restrict
// UCX to the loopback device.
//
// The parameters also turn off UCX's keepalive. With keepalive, UCX sends each peer a message every 20 s, after which
// the next transfer waits for the target's agent, although a write does not need the agent. kvferry's own channels
// detect the death of a peer.
func UCXParams(transports string, trusted bool) map[string]string {
	config := "KEEPALIVE_INTERVAL=inf"
	if transports != "" {
		config += ",TLS=" + transports
	}
	if !trusted {
		config += ",NET_DEVICES=" + loopback
	}
	return map[string]string{"engine_config": config}
}
