package comm

import (
	"fmt"
	"strings"
)

// A Link says what carries the bytes of a pair. HCCL itself makes the choice, once for each pair.
type Link int

const (
	// RoCE is the NPU's own NIC. Device and host memory are targets.
	RoCE Link = iota + 1
	// HCCS is shared memory between NPUs. Only device memory is a target, in whole pages of 2 MiB.
	HCCS
)

func (l Link) String() string {
	switch l {
	case RoCE:
		return "RoCE"
	case HCCS:
		return "HCCS"
	}
	return fmt.Sprintf("link %d", int(l))
}

// LinkOf predicts HCCL's choice for a pair. soc is acl.Info.SoC, intraRoCE is Info.IntraRoCE. On chips of the A2
// generation (Ascend910B) HCCS connects the NPUs of a server, and on A3 (Ascend910_93) the NPUs of a super pod; there a
// pair with a rank table that names no super pods counts as being in the same super pod. All remaining pairs have RoCE
// only. An A2 pair of the same server without a connection between the NPUs has no link at all, which only Prepare
// reports.
func LinkOf(soc string, a, b Rank, intraRoCE bool) Link {
	switch {
	case intraRoCE:
		return RoCE
	case strings.Contains(soc, "910B") && a.Server == b.Server:
		return HCCS
	case strings.Contains(soc, "910_93") && samePod(a, b):
		return HCCS
	}
	return RoCE
}

func samePod(a, b Rank) bool { return a.Pod == nil || b.Pod == nil || a.Pod.ID == b.Pod.ID }
