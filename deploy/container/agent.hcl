# Configuration of the agent of compose.yaml, beside its cluster.hcl.
data_dir  = "/var/lib/outpost"
bind_addr = "127.0.0.1"

client {
  enabled = true
}
