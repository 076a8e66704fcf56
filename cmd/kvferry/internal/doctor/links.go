package doctor

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
)

// A devicePair is a pair of devices, by their IDs.
type devicePair struct{ a, b int }

// checkLinks reports the links between the devices of this machine, and the link to other hosts.
func checkLinks(s *Section, n NPUs) {
	i := n.HCCL.Info
	if n.HCCL.Err != nil {
		return // the library's section reports the failure, and without HCCL there are no links to report
	}
	if i.IntraRoCE && i.IntraPCIe && chipGeneration(n.Info.SoC) == "A2" {
		s.addWarning("within a host", "HCCL_INTRA_ROCE_ENABLE=1 without HCCL_INTRA_PCIE_ENABLE=0",
			"set both for all nodes of the host: this chip uses RoCE within a host only if both are set, and this report, and the time "+
				"after which a page is safe, assume RoCE")
	}
	byLink := map[string][]devicePair{}
	var kinds []string
	pairs := 0
	for at, a := range n.Devices {
		for _, b := range n.Devices[at+1:] {
			kind := linkOf(n.Info, i, a, b)
			if byLink[kind] == nil {
				kinds = append(kinds, kind)
			}
			byLink[kind] = append(byLink[kind], devicePair{a.ID, b.ID})
			pairs++
		}
	}
	for _, kind := range kinds {
		name := "some pairs"
		value := formatPairs(byLink[kind]) + ": " + kind
		if len(byLink[kind]) == pairs {
			name, value = "all pairs", kind
		}
		switch kind {
		case notJoined:
			s.addWarning(name, value,
				"set HCCL_INTRA_ROCE_ENABLE=1 and HCCL_INTRA_PCIE_ENABLE=0 for all nodes of the host, so that these devices use RoCE")
		default:
			s.addOK(name, "%s", value)
		}
	}
	if len(n.Devices) > 0 {
		s.addOK("other hosts", "%s", linkToOtherHost(n, i))
	}
}

// The kinds of links, with the memory that each kind can reach.
const (
	overHCCS  = "HCCS, only to device memory; HCCL_INTRA_ROCE_ENABLE=1 selects RoCE, which also reaches host memory"
	overRoCE  = "RoCE, to device memory and host memory"
	notJoined = "no link, because HCCS does not connect them"
)

func linkOf(npu acl.Info, i comm.Info, a, b Device) string {
	if comm.LinkOf(npu.SoC, a.linkRank("here"), b.linkRank("here"), i.IntraRoCE) == comm.RoCE {
		return overRoCE
	}
	if can, known := a.Reaches[b.ID]; known && !can && chipGeneration(npu.SoC) == "A2" {
		return notJoined
	}
	return overHCCS
}

// linkToOtherHost describes the link of the first device to another host.
func linkToOtherHost(n NPUs, i comm.Info) string {
	d := n.Devices[0]
	if comm.LinkOf(n.Info.SoC, d.linkRank("here"), d.linkRank("there"), i.IntraRoCE) == comm.HCCS {
		return "within this super pod " + overHCCS + "; RoCE beyond it"
	}
	return overRoCE
}

// linkRank returns the device as an end of a link, on the server with the given name.
func (d Device) linkRank(server string) comm.Rank {
	r := comm.Rank{Server: server}
	if d.SuperPod != nil {
		r.Pod = &comm.Pod{ID: d.SuperPod.ID, Device: d.SuperPod.Device}
	}
	return r
}

func formatPairs(list []devicePair) string {
	var all []string
	for _, p := range list {
		all = append(all, fmt.Sprintf("%d-%d", p.a, p.b))
	}
	return strings.Join(all, " ")
}
