package serve

import (
	"fmt"

	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/fsm/directory/replica"
	"github.com/kvferry/kvferry/protocol"
)

// Config is the configuration of a directory and of the messages. [Default] sets every field except Heartbeat and the
// address and incarnation of the log; without these no log is used.
type Config struct {
	Directory directory.Config
	Wire      protocol.Limits
	Log       replica.Config
	// Heartbeat is the host:port of the heartbeat channel, which workers learn when they register. Empty: there is
	// none.
	Heartbeat string
}

// Default returns a configuration for a fleet of a thousand workers.
func Default() Config {
	return Config{Directory: directory.Default(), Wire: protocol.DefaultLimits(), Log: replica.Default()}
}

// Check returns an error that names the first invalid field.
func (c *Config) Check() error {
	if err := c.Directory.Check(); err != nil {
		return err
	}
	if err := c.Log.Check(); err != nil {
		return fmt.Errorf("directory: log: %w", err)
	}
	if c.Heartbeat != "" {
		if _, err := protocol.ParseEndpoint(c.Heartbeat); err != nil {
			return fmt.Errorf("directory: heartbeat: %w", err)
		}
	}
	return nil
}
