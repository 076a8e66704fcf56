package comm

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func parseAddress(text string) netip.Addr { return netip.MustParseAddr(text) }

func TestTable(t *testing.T) {
	for _, c := range []struct {
		name  string
		a, b  Rank
		rankA uint32
		want  string
	}{
		{
			name:  "two hosts, 1.0, the default port",
			a:     Rank{Server: "10.0.0.2", Device: 3, Address: parseAddress("192.168.1.23")},
			b:     Rank{Server: "10.0.0.1", Device: 0, Address: parseAddress("192.168.1.10"), Port: 17000},
			rankA: 1,
			want: `{"status":"completed","version":"1.0","server_count":"2","server_list":[` +
				`{"server_id":"10.0.0.1","device":[{"device_id":"0","device_ip":"192.168.1.10","device_port":"17000",` +
				`"rank_id":"0"}]},` +
				`{"server_id":"10.0.0.2","device":[{"device_id":"3","device_ip":"192.168.1.23","device_port":"16666",` +
				`"rank_id":"1"}]}]}`,
		},
		{
			name: "one host, 1.0: one server with both, by device",
			a:    Rank{Server: "h", Device: 2, Address: parseAddress("::ffff:192.168.1.2")},
			b:    Rank{Server: "h", Device: 10, Address: parseAddress("192.168.1.1")},
			want: `{"status":"completed","version":"1.0","server_count":"1","server_list":[` +
				`{"server_id":"h","device":[{"device_id":"2","device_ip":"192.168.1.2","device_port":"16666","rank_id":"0"},` +
				`{"device_id":"10","device_ip":"192.168.1.1","device_port":"16666","rank_id":"1"}]}]}`,
		},
		{
			name: "two hosts of one super pod, 1.2",
			a:    Rank{Server: "node-a", Device: 0, Address: parseAddress("192.168.1.10"), Pod: &Pod{ID: 0, Device: 0}},
			b:    Rank{Server: "node-b", Device: 3, Address: parseAddress("fe80::3"), Pod: &Pod{ID: 0, Device: 67108867}},
			want: `{"status":"completed","version":"1.2","server_count":"2","server_list":[` +
				`{"server_id":"node-a","device":[{"device_id":"0","super_device_id":"0","device_ip":"192.168.1.10",` +
				`"device_port":"16666","rank_id":"0"}]},` +
				`{"server_id":"node-b","device":[{"device_id":"3","super_device_id":"67108867","device_ip":"fe80::3",` +
				`"device_port":"16666","rank_id":"1"}]}],` +
				`"super_pod_list":[{"super_pod_id":"0","server_list":[{"server_id":"node-a"},{"server_id":"node-b"}]}]}`,
		},
		{
			name: "two super pods, 1.2",
			a:    Rank{Server: "a", Address: parseAddress("1.1.1.1"), Pod: &Pod{ID: 7}},
			b:    Rank{Server: "b", Address: parseAddress("1.1.1.2"), Pod: &Pod{ID: 4}},
			want: `{"status":"completed","version":"1.2","server_count":"2","server_list":[` +
				`{"server_id":"a","device":[{"device_id":"0","super_device_id":"0","device_ip":"1.1.1.1","device_port":"16666",` +
				`"rank_id":"0"}]},` +
				`{"server_id":"b","device":[{"device_id":"0","super_device_id":"0","device_ip":"1.1.1.2","device_port":"16666",` +
				`"rank_id":"1"}]}],` +
				`"super_pod_list":[{"super_pod_id":"7","server_list":[{"server_id":"a"}]},{"super_pod_id":"4",` +
				`"server_list":[{"server_id":"b"}]}]}`,
		},
		{
			name: "one end in a super pod, the other in none: 1.0",
			a:    Rank{Server: "a", Address: parseAddress("1.1.1.1"), Pod: &Pod{ID: 7}},
			b:    Rank{Server: "b", Address: parseAddress("1.1.1.2")},
			want: `{"status":"completed","version":"1.0","server_count":"2","server_list":[` +
				`{"server_id":"a","device":[{"device_id":"0","device_ip":"1.1.1.1","device_port":"16666","rank_id":"0"}]},` +
				`{"server_id":"b","device":[{"device_id":"0","device_ip":"1.1.1.2","device_port":"16666","rank_id":"1"}]}]}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, rankA, rankB, err := NewRankTable(c.a, c.b)
			if err != nil || rankA != c.rankA || rankB != 1-c.rankA || string(got) != c.want {
				t.Errorf("ranks %d and %d, %v\ngot  %s\nwant %s", rankA, rankB, err, got, c.want)
			}
		})
	}
}

func TestTableRefusals(t *testing.T) {
	good := Rank{Server: "a", Address: parseAddress("1.1.1.1")}
	for name, c := range map[string]struct {
		spoil func(*Rank)
		want  string
	}{
		"no server":       {func(r *Rank) { r.Server = "" }, "server id"},
		"a long server":   {func(r *Rank) { r.Server = strings.Repeat("s", 65) }, "65 bytes"},
		"no address":      {func(r *Rank) { r.Address = netip.Addr{} }, "hccn_tool"},
		"unspecified":     {func(r *Rank) { r.Address = parseAddress("0.0.0.0") }, "hccn_tool"},
		"a zone":          {func(r *Rank) { r.Address = parseAddress("fe80::1%eth0") }, "hccn_tool"},
		"the same place":  {func(r *Rank) { r.Address, r.Port = parseAddress("1.1.1.1"), 16666 }, "different ports"},
		"torn super pods": {func(r *Rank) { r.Server, r.Pod = "a", &Pod{ID: 9} }, "super pods 1 and 9"},
	} {
		a, b := good, Rank{Server: "b", Device: 1, Address: parseAddress("1.1.1.2")}
		a.Pod = &Pod{ID: 1}
		c.spoil(&b)
		if _, _, _, err := NewRankTable(a, b); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want ErrInvalid with %q", name, err, c.want)
		}
	}
}

// Both ends make the same bytes and opposite ranks, in whichever order the arguments are, and the result is JSON with
// strings only.
func TestTableIsTheSameAtBothEnds(t *testing.T) {
	rank := rapid.Custom(func(t *rapid.T) Rank {
		r := Rank{
			Server:  rapid.StringN(1, 8, 64).Draw(t, "server"),
			Device:  rapid.Uint32Range(0, 20).Draw(t, "device"),
			Address: netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "address")}),
			Port:    rapid.Uint16Range(0, 3).Draw(t, "port"),
		}
		if rapid.Bool().Draw(t, "pod") {
			r.Pod = &Pod{ID: rapid.Int64Range(0, 2).Draw(t, "pod id"), Device: rapid.Int64Range(0, 5).Draw(t, "pod device")}
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := rank.Draw(t, "a"), rank.Draw(t, "b")
		if rapid.Bool().Draw(t, "one server") {
			b.Server = a.Server
		}
		here, hereA, hereB, errHere := NewRankTable(a, b)
		there, thereB, thereA, errThere := NewRankTable(b, a)
		if (errHere == nil) != (errThere == nil) {
			t.Fatalf("one end fails: %v, %v", errHere, errThere)
		}
		if errHere != nil {
			return
		}
		if string(here) != string(there) || hereA != thereA || hereB != thereB || hereA+hereB != 1 {
			t.Fatalf("ranks %d %d and %d %d\n%s\n%s", hereA, hereB, thereA, thereB, here, there)
		}
		if !json.Valid(here) {
			t.Fatalf("no JSON: %s", here)
		}
	})
}

func TestLinkOf(t *testing.T) {
	pod := func(server string, id int64) Rank { return Rank{Server: server, Pod: &Pod{ID: id}} }
	for _, c := range []struct {
		name      string
		soc       string
		a, b      Rank
		intraRoCE bool
		want      Link
	}{
		{"A2, two hosts", "Ascend910B3", Rank{Server: "a"}, Rank{Server: "b"}, false, RoCE},
		{"A2, one host", "Ascend910B3", Rank{Server: "a"}, Rank{Server: "a"}, false, HCCS},
		{"A2, one host, RoCE asked for", "Ascend910B3", Rank{Server: "a"}, Rank{Server: "a"}, true, RoCE},
		{"A3, one pod, two hosts", "Ascend910_9391", pod("a", 1), pod("b", 1), false, HCCS},
		{"A3, two pods", "Ascend910_9391", pod("a", 1), pod("b", 2), false, RoCE},
		{"A3, one pod, RoCE asked for", "Ascend910_9391", pod("a", 1), pod("b", 1), true, RoCE},
		{"A3, a table without pods", "Ascend910_9391", pod("a", 1), Rank{Server: "b"}, false, HCCS},
		{"another chip", "Ascend310P3", Rank{Server: "a"}, Rank{Server: "a"}, false, RoCE},
	} {
		if got := LinkOf(c.soc, c.a, c.b, c.intraRoCE); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if got := LinkOf(c.soc, c.b, c.a, c.intraRoCE); got != c.want {
			t.Errorf("%s, from the other end: %v, want %v", c.name, got, c.want)
		}
	}
}
