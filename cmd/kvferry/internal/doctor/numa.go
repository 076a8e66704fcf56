package doctor

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A numaNode is a NUMA node, a group of cores with local memory.
type numaNode struct {
	id    int
	cores []int
	bytes uint64
}

func (m Machine) numaNodes() []numaNode {
	var nodes []numaNode
	for _, dir := range m.globFiles("sys/devices/system/node/node[0-9]*") {
		id, err := strconv.Atoi(strings.TrimPrefix(path.Base(dir), "node"))
		if err != nil {
			continue
		}
		n := numaNode{id: id, cores: parseList(m.readText(dir + "/cpulist"))}
		n.bytes, _ = m.readKilobytes(dir+"/meminfo", fmt.Sprintf("Node %d MemTotal", id))
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b numaNode) int { return a.id - b.id })
	return nodes
}

// nodesOf returns the nodes that have any of the cores.
func nodesOf(nodes []numaNode, cores []int) (ids []int) {
	for _, n := range nodes {
		if slices.ContainsFunc(n.cores, func(core int) bool { return slices.Contains(cores, core) }) {
			ids = append(ids, n.id)
		}
	}
	return ids
}

// ownCores returns the cores on which this process may run.
func (m Machine) ownCores() []int {
	return parseList(m.readField("proc/self/status", "Cpus_allowed_list"))
}

func (m Machine) checkCores(s *Section) {
	own, quota := m.ownCores(), m.cgroupLimits().cores
	switch {
	case len(own) == 0:
		s.addNote("cores", "unknown: /proc/self/status does not list them", "mount /proc to have the cores checked")
	case quota != 0 && quota < float64(len(own)):
		s.addNote("cores", fmt.Sprintf("%s (%s), of which the container may use %.3g", formatCount(len(own), "core"), formatList(own),
			quota),
			"give the container whole cores (cpuset) instead of a quota: a node that has used up its quota is stopped while its "+
				"leases expire")
	default:
		s.addOK("cores", "%s (%s)", formatCount(len(own), "core"), formatList(own))
	}
	nodes := m.numaNodes()
	if len(nodes) < 2 {
		s.addOK("numa", "one node")
		return
	}
	var all []string
	for _, n := range nodes {
		all = append(all, fmt.Sprintf("node %d: cores %s, %s", n.id, formatList(n.cores), formatSize(n.bytes)))
	}
	if on := nodesOf(nodes, own); len(on) > 1 {
		s.addNote("numa", strings.Join(all, "; ")+"; this process runs on nodes "+formatList(on),
			"bind each rank to the node of its device: numactl --cpunodebind=N --membind=N kvferry node ...")
	} else {
		s.addOK("numa", "%s; this process runs on node %s", strings.Join(all, "; "), formatList(on))
	}
}

// parseList reads a list of numbers in the form that sysfs uses, for example "0-3,8". It skips malformed parts.
func parseList(text string) (list []int) {
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		low, high, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(low)
		if err != nil {
			continue
		}
		last := first
		if ranged {
			if last, err = strconv.Atoi(high); err != nil {
				continue
			}
		}
		for n := first; n <= last && n-first < math.MaxUint16; n++ {
			list = append(list, n)
		}
	}
	return list
}

// formatList writes a sorted list of numbers as parseList reads it.
func formatList(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		end := i
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[i]))
		if end > i {
			fmt.Fprintf(&b, "-%d", list[end])
		}
		i = end + 1
	}
	return b.String()
}
