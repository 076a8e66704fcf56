//go:build cgo && linux

package hccl_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"CANNEMU_DEVICES": "2", "CANNEMU_DEVICE_MEMORY": "67108864", "CANNEMU_HOST_MEMORY": "67108864"} {
		os.Setenv(name, value)
	}
	goleak.VerifyTestMain(m)
}

func TestContract(t *testing.T) {
	for _, c := range []struct {
		name string
		o    hccltest.Options
	}{
		{"roce", hccltest.Options{}},
		{"hccs", hccltest.Options{HCCS: true}},
		{"host", hccltest.Options{Host: true, Others: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			planetest.RunLeased(t, hccltest.Start(t).Maker(c.o))
		})
	}
}
