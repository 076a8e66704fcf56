//go:build cgo && linux

package libnixl_test

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

// listeningAddresses returns the addresses at which this process listens for TCP.
func listeningAddresses(t *testing.T) (all []netip.AddrPort) {
	t.Helper()
	own := map[string]bool{}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
			own[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			const listens = "0A"
			if len(fields) > 9 && fields[3] == listens && own[fields[9]] {
				all = append(all, parseAddr(t, fields[1]))
			}
		}
	}
	return all
}

// parseAddr reads an address as the kernel writes it: words of four bytes in the machine's order.
func parseAddr(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+4 <= len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	addr, _ := netip.AddrFromSlice(raw)
	var n uint16
	if _, err := fmt.Sscanf(port, "%x", &n); err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(addr, n)
}

// UCX listens at all addresses of a host, whatever address the node has, unless its devices are named. Agents on a
// network that is not trusted listen only at the loopback, over each transport.
func TestAgentsListenAtTheLoopback(t *testing.T) {
	for _, c := range transports {
		name := strings.TrimPrefix(c.config, "TLS=")
		n := newTestAgent(t, "loopback", libnixl.UCXParams(name, false)["engine_config"], 4096, 1)
		all := listeningAddresses(t)
		if len(all) == 0 {
			t.Errorf("%s: it listens nowhere: this test looks at the wrong sockets", c.name)
		}
		for _, at := range all {
			if !at.Addr().Unmap().IsLoopback() {
				t.Errorf("%s: the agent listens at %v", c.name, at)
			}
		}
		n.closeAll(t)
	}
}
