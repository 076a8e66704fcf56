package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
)

// A boundPort is a port that a node of the configuration binds.
type boundPort struct {
	key  string
	rank int
	host string
	port uint16
}

func listBoundPorts(c *config.Config) (all []boundPort) {
	for rank := range max(1, c.RankCount()) {
		add := func(binds bool, key string, at protocol.Endpoint, ok bool) {
			if binds && ok && at.Port != 0 {
				all = append(all, boundPort{key, rank, at.Host, at.Port})
			}
		}
		init, hasInit := c.InitEndpoint(rank)
		add(c.Role.Receives() || c.Pull.Enabled, "pd_peer_init_port", init, hasInit)
		alloc, hasAlloc := c.AllocEndpoint(rank)
		add(c.Role.Receives(), "pd_peer_alloc_port", alloc, hasAlloc)
		done, hasDone := c.DoneEndpoint(rank)
		add(true, "pd_pull_done_port", done, hasDone)
		tcp, hasTCP := c.TCPEndpoint(rank)
		hccl, hasHCCL := c.HCCLEndpoint(rank)
		add(c.Channel == config.ChannelHCCL, "hccl.port", hccl, hasHCCL)
		nixl, hasNIXL := c.NIXLEndpoint(rank)
		add(c.Channel == config.ChannelNIXL, "nixl.port", nixl, hasNIXL)
		add(c.Channel == config.ChannelAuto || c.Channel == config.ChannelTCP, "data.tcp_port", tcp, hasTCP)
	}
	return all
}

// checkPorts binds each port for a moment, and checks whether the system may use the port for outgoing connections of
// other programs.
func (m Machine) checkPorts(s *Section, c *config.Config) {
	free := 0
	var outgoing []string
	all := listBoundPorts(c)
	for _, b := range all {
		if err := m.Listen(b.host, b.port); err != nil {
			s.addProblem(b.key, fmt.Sprintf("%s port %d: %v", b.host, b.port, err),
				"stop the program that uses the port (ss -ltnp), or choose a different port; the host must be an address of this machine")
			continue
		}
		free++
		if m.isEphemeral(b.port) {
			outgoing = append(outgoing, strconv.Itoa(int(b.port)))
		}
	}
	if free > 0 && free == len(all) {
		s.addOK("ports", "%s can be bound", formatCount(free, "port"))
	}
	if len(outgoing) > 0 {
		slices.Sort(outgoing)
		s.addNote("port range",
			"the system may use "+strings.Join(outgoing,
				", ")+" for outgoing connections, because net.ipv4.ip_local_port_range contains it",
			"sysctl net.ipv4.ip_local_reserved_ports="+strings.Join(outgoing, ","))
	}
}

// isEphemeral reports whether the system may use a port for outgoing connections.
func (m Machine) isEphemeral(port uint16) bool {
	words := strings.Fields(m.readText("proc/sys/net/ipv4/ip_local_port_range"))
	if len(words) != 2 {
		return false
	}
	low, _ := strconv.Atoi(words[0])
	high, _ := strconv.Atoi(words[1])
	reserved := parseList(m.readText("proc/sys/net/ipv4/ip_local_reserved_ports"))
	return int(port) >= low && int(port) <= high && !slices.Contains(reserved, int(port))
}
