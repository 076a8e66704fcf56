package comm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
)

// A Rank is an end of a pair, in the terms of a rank table. The ends exchange their Ranks.
type Rank struct {
	Server  string     // up to 64 bytes; equal texts mean the same host
	Device  uint32     // the NPU's physical id
	Address netip.Addr // the NPU's RoCE address
	Port    uint16     // where the NPU listens; zero: 16666. Processes that share an NPU need different ports
	Pod     *Pod       // nil on chips that are in no super pod
}

// A Pod is the position of an NPU in a super pod.
type Pod struct {
	ID     int64 // of the super pod: acl.SuperPod.ID
	Device int64 // of the NPU in the pod: acl.SuperPod.Device
}

const (
	defaultPort    = 16666
	serverIDLength = 64
)

// NewRankTable returns the rank table of a pair as JSON, and the rank of each end in that table. Both ends get the same
// bytes, in whichever order the arguments are: the table is sorted by server, device, position in the pod, address and
// port. If both ends are in a super pod, the table has version 1.2, with super pods, and otherwise version 1.0.
func NewRankTable(a, b Rank) (table []byte, rankA, rankB uint32, err error) {
	for _, r := range []*Rank{&a, &b} {
		if r.Port == 0 {
			r.Port = defaultPort
		}
		r.Address = r.Address.Unmap()
		if err := r.checkFields(); err != nil {
			return nil, 0, 0, err
		}
	}
	pods := a.Pod != nil && b.Pod != nil
	if !pods {
		a.Pod, b.Pod = nil, nil
	}
	order := compareRanks(a, b)
	switch {
	case a.Address == b.Address && a.Port == b.Port:
		return nil, 0, 0, fmt.Errorf("%w: both ranks are at %v port %d: give the ranks different ports", ErrInvalid, a.Address,
			a.Port)
	case pods && a.Server == b.Server && a.Pod.ID != b.Pod.ID:
		return nil, 0, 0, fmt.Errorf("%w: server %q is in super pods %d and %d: give each host a separate server id", ErrInvalid,
			a.Server, a.Pod.ID, b.Pod.ID)
	case order < 0:
		table, err = encodeTable(a, b, pods)
		return table, 0, 1, err
	default:
		table, err = encodeTable(b, a, pods)
		return table, 1, 0, err
	}
}

func (r *Rank) checkFields() error {
	switch {
	case r.Server == "" || len(r.Server) > serverIDLength:
		return fmt.Errorf("%w: server id %q has %d bytes: give 1 to %d", ErrInvalid, r.Server, len(r.Server), serverIDLength)
	case !r.Address.IsValid() || r.Address.IsUnspecified() || r.Address.Zone() != "":
		return fmt.Errorf("%w: device %d of %s has the RoCE address %v: configure an address (hccn_tool -i %d -ip -g shows the address)",
			ErrInvalid, r.Device, r.Server, r.Address, r.Device)
	}
	return nil
}

func compareRanks(a, b Rank) int {
	var podA, podB Pod
	if a.Pod != nil {
		podA, podB = *a.Pod, *b.Pod
	}
	return cmp.Or(
		cmp.Compare(a.Server, b.Server), cmp.Compare(a.Device, b.Device), cmp.Compare(podA.Device, podB.Device),
		a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port),
	)
}

// The JSON of rank tables. All numbers are strings.
type tableJSON struct {
	Status      string       `json:"status"`
	Version     string       `json:"version"`
	ServerCount string       `json:"server_count"`
	Servers     []serverJSON `json:"server_list"`
	Pods        []podJSON    `json:"super_pod_list,omitempty"`
}

type serverJSON struct {
	ID      string       `json:"server_id"`
	Devices []deviceJSON `json:"device,omitempty"`
}

type deviceJSON struct {
	ID    string `json:"device_id"`
	Super string `json:"super_device_id,omitempty"`
	IP    string `json:"device_ip"`
	Port  string `json:"device_port"`
	Rank  string `json:"rank_id"`
}

type podJSON struct {
	ID      string       `json:"super_pod_id"`
	Servers []serverJSON `json:"server_list"`
}

func encodeTable(first, second Rank, pods bool) ([]byte, error) {
	t := tableJSON{Status: "completed", Version: "1.0"}
	if pods {
		t.Version = "1.2"
	}
	for i, r := range []Rank{first, second} {
		device := deviceJSON{
			ID: formatDecimal(r.Device), IP: r.Address.String(), Port: formatDecimal(r.Port), Rank: formatDecimal(i),
		}
		if pods {
			device.Super = formatDecimal(r.Pod.Device)
		}
		if i == 1 && r.Server == first.Server {
			t.Servers[0].Devices = append(t.Servers[0].Devices, device)
			continue
		}
		t.Servers = append(t.Servers, serverJSON{ID: r.Server, Devices: []deviceJSON{device}})
		if pods {
			t.addServer(formatDecimal(r.Pod.ID), r.Server)
		}
	}
	t.ServerCount = formatDecimal(len(t.Servers))
	return json.Marshal(t)
}

// addServer adds a server to a super pod, which is the last of the table or a new super pod.
func (t *tableJSON) addServer(pod, server string) {
	if len(t.Pods) == 0 || t.Pods[0].ID != pod {
		t.Pods = append(t.Pods, podJSON{ID: pod})
	}
	last := &t.Pods[len(t.Pods)-1]
	last.Servers = append(last.Servers, serverJSON{ID: server})
}

func formatDecimal[T int | int64 | uint32 | uint16](n T) string {
	return strconv.FormatInt(int64(n), 10)
}
