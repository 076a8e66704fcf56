package zeromq

import "testing"

func TestHosts(t *testing.T) {
	for host, want := range map[string]bool{
		"10.0.0.1": true, "fd00::1": true, "fe80::1%eth0": true, "::1": true,
		"node-1.rack_2": true, "localhost": true,
		"": false, "*": false, "[::1]": false, "fe80::1%a;b": false, "a/b": false, "a\x00b": false,
		string(make([]byte, 300)): false,
	} {
		if got := IsHost(host); got != want {
			t.Errorf("%q is a host: %t", host, got)
		}
	}
}
