package good

import (
	"testing"
	"time"
)

// Tests are drivers, so they may use packages that machines must not use.
func TestStep(t *testing.T) {
	done := make(chan float64)
	go func() { done <- time.Since(time.Now()).Seconds() }()
	<-done
}
