// Package npunode is where a node on an Ascend NPU gets what it stands on: the vendor's libraries, one device, and
// the plane over the NPUs' links. The command asks for it only where a configuration does, so a machine without
// CANN runs everything else; where it was built without cgo, Open says so.
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

// ErrSetting is wrapped by errors that a change of the configuration mends; all others are the machine's.
var ErrSetting = errors.New("wrong setting")

// bootID is where Linux says which run of which machine this is, the same in all of its containers.
const bootID = "/proc/sys/kernel/random/boot_id"

// serverID names this host in rank tables: NPUs of one name are taken to be in one host. A name that was given goes
// before.
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

// deviceAddress is the NPU's address and port for RoCE. HCCL wants one even for links inside a host.
func deviceAddress(cfg *config.Config, rank, physical int) (netip.Addr, uint16, error) {
	port, ok := cfg.DevicePort(rank)
	if !ok {
		return netip.Addr{}, 0, fmt.Errorf("%w: extra_config.kvferry.hccl.device_port has none for rank %d; add it",
			ErrSetting, rank)
	}
	address, ok := cfg.DeviceIP(rank)
	if !ok {
		return netip.Addr{}, 0, fmt.Errorf("%w: extra_config.kvferry.hccl.device_ip has none for rank %d; add it", ErrSetting,
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
