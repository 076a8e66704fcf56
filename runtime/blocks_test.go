package runtime

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/fsm/gateway"
)

// Producers are hosts, or plain engines of vLLM by the names that a gateway has for them.
func TestProducersOfARegistration(t *testing.T) {
	plain := gateway.PlainRank{Host: "127.0.0.1", Port: 5600, Stages: 1, Ranks: 1}.Addr()
	for _, host := range []string{"10.0.0.1", "fd00::1", "node-7", plain.Host} {
		if err := checkProducers("register", []ProducerPeer{{Host: host, InitPort: 1, Port: 2}}); err != nil {
			t.Errorf("%q: %v", host, err)
		}
	}
	for _, host := range []string{"", "tcp://10.0.0.1", "[fd00::1]", "0.0.0.0"} {
		err := checkProducers("register", []ProducerPeer{{Host: host, InitPort: 1, Port: 2}})
		if err == nil || !strings.Contains(err.Error(), "Producers[0].Host") {
			t.Errorf("%q: %v", host, err)
		}
	}
}
