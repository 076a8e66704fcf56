package hccn

import "testing"

func TestAddress(t *testing.T) {
	const text = "address_0=192.168.1.10\nnetmask_0=255.255.255.0\naddress_1 = 192.168.1.11 \nIPv6address_2=fd00::12\n" +
		"address_3=nonsense\n" +
		"IPv6address_1=fd00::11\nsend_arp_status_0=1\naddress_10=192.168.1.20\n"
	for physical, want := range map[int]string{0: "192.168.1.10", 1: "192.168.1.11", 2: "fd00::12", 10: "192.168.1.20"} {
		if got, ok := Address(text, physical); !ok || got.String() != want {
			t.Errorf("NPU %d: got %v, %v, want %s", physical, got, ok, want)
		}
	}
	for _, physical := range []int{3, 4, -1} {
		if got, ok := Address(text, physical); ok {
			t.Errorf("NPU %d has %v", physical, got)
		}
	}
}
