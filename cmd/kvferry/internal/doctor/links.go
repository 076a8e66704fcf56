package doctor

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
)

// A devicePair is a pair of devices, by their IDs.
type pair struct{ a, b int }

// checkLinks reports the links between the devices of this machine, and the link to other hosts.
func links(s *Section, n NPUs) {
	i := n.HCCL.Info
	if n.HCCL.Failed != nil {
		return // the library's section reports the failure, and without HCCL there are no links to report
	}
	if i.IntraRoCE && i.IntraPCIe && generation(n.Info.SoC) == "A2" {
		s.warn("within a host", "HCCL_INTRA_ROCE_ENABLE=1 without HCCL_INTRA_PCIE_ENABLE=0",
			"set both for all nodes of the host: this chip takes RoCE there with both, and what is told here, and when a page "+
				"is safe, follows from RoCE")
	}
	byLink := map[string][]pair{}
	var kinds []string
	pairs := 0
	for at, a := range n.Devices {
		for _, b := range n.Devices[at+1:] {
			kind := linkOf(n.Info, i, a, b)
			if byLink[kind] == nil {
				kinds = append(kinds, kind)
			}
			byLink[kind] = append(byLink[kind], pair{a.ID, b.ID})
			pairs++
		}
	}
	for _, kind := range kinds {
		name := "some pairs"
		value := formatPairs(byLink[kind]) + ": " + kind
		if len(byLink[kind]) == pairs {
			name, value = "every pair", kind
		}
		switch kind {
		case unjoined:
			s.warn(name, value,
				"set HCCL_INTRA_ROCE_ENABLE=1 and HCCL_INTRA_PCIE_ENABLE=0 for all nodes of the host: these devices then use RoCE")
		default:
			s.ok(name, "%s", value)
		}
	}
	if len(n.Devices) > 0 {
		s.ok("other hosts", "%s", elsewhere(n, i))
	}
}

// The kinds of links, with the memory that each kind can reach.
const (
	overHCCS = "HCCS, to device memory only; HCCL_INTRA_ROCE_ENABLE=1 makes it RoCE, which reaches host memory"
	overRoCE = "RoCE, to device and host memory"
	unjoined = "none, not being joined by HCCS"
)

func linkOf(npu acl.Info, i comm.Info, a, b Device) string {
	if comm.LinkOf(npu.SoC, a.rank("here"), b.rank("here"), i.IntraRoCE) == comm.RoCE {
		return overRoCE
	}
	if can, known := a.Reaches[b.ID]; known && !can && generation(npu.SoC) == "A2" {
		return unjoined
	}
	return overHCCS
}

// linkToOtherHost describes the link of the first device to another host.
func elsewhere(n NPUs, i comm.Info) string {
	d := n.Devices[0]
	if comm.LinkOf(n.Info.SoC, d.rank("here"), d.rank("there"), i.IntraRoCE) == comm.HCCS {
		return "within this super pod " + overHCCS + "; RoCE beyond it"
	}
	return overRoCE
}

// linkRank returns the device as an end of a link, on the server with the given name.
func (d Device) rank(server string) comm.Rank {
	r := comm.Rank{Server: server}
	if d.SuperPod != nil {
		r.Pod = &comm.Pod{ID: d.SuperPod.ID, Device: d.SuperPod.Device}
	}
	return r
}

func formatPairs(list []pair) string {
	var all []string
	for _, p := range list {
		all = append(all, fmt.Sprintf("%d-%d", p.a, p.b))
	}
	return strings.Join(all, " ")
}
