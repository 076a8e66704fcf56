// Package npunode provides a node on an Ascend NPU with the vendor's libraries, one device, and the data plane over the
// links between NPUs. The command calls the package only if the configuration uses an NPU, so that a machine without
// CANN can run every other configuration. In a build without cgo, or for another system than Linux, Open fails and says
// why.
//
// For example, the command calls Open with a configuration and a rank, opens the node with the Options that result,
// closes the node at the end, and then closes the NPU.
package npunode

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/hccn"
	"github.com/kvferry/kvferry/runtime/config"
)

// ErrSetting is wrapped by errors that a change of the configuration can fix. All other errors are about the machine.
var ErrSetting = errors.New("wrong setting")

// bootID is the file in which Linux names the current boot of this machine. All containers of a host read the same
// name.
const bootID = "/proc/sys/kernel/random/boot_id"

// serverID returns the name of this host in rank tables. HCCL takes NPUs with the same server name to be in the same
// host. A name from the configuration takes precedence over the boot ID.
func serverID(cfg *config.Config) (string, error) {
	if cfg.HCCL.ServerID != "" {
		return cfg.HCCL.ServerID, nil
	}
	b, err := os.ReadFile(bootID)
	if err != nil {
		return "", fmt.Errorf("%w: the host has no name for rank tables (%w); set extra_config.kvferry.hccl.server_id",
			ErrSetting, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// deviceAddress returns the NPU's RoCE address and port. HCCL requires an address even for links inside a host. The
// function fails if neither the configuration nor hccn.File has an address, or if the configuration has no port for
// rank.
func deviceAddress(cfg *config.Config, rank, physical int) (netip.Addr, uint16, error) {
	port, ok := cfg.DevicePort(rank)
	if !ok {
		return netip.Addr{}, 0, fmt.Errorf("%w: extra_config.kvferry.hccl.device_port has no port for rank %d; add a port",
			ErrSetting, rank)
	}
	address, ok := cfg.DeviceIP(rank)
	if !ok {
		return netip.Addr{}, 0, fmt.Errorf("%w: extra_config.kvferry.hccl.device_ip has no address for rank %d; add an address", ErrSetting,
			rank)
	}
	if address.IsValid() {
		return address, port, nil
	}
	text, err := os.ReadFile(hccn.File)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return netip.Addr{}, 0, fmt.Errorf("the RoCE address of NPU %d: %w", physical, err)
	}
	if address, ok = hccn.Address(string(text), physical); !ok {
		return netip.Addr{}, 0,
			fmt.Errorf("%w: NPU %d has no RoCE address in %s; set extra_config.kvferry.hccl.device_ip, or mount that file "+
				"into the container (hccn_tool -i %[2]d -ip -g)",
				ErrSetting, physical, hccn.File)
	}
	return address, port, nil
}
