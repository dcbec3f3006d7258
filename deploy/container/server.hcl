# Configuration of the server of compose.yaml, beside its cluster.hcl. Publish the port to other machines only with a tls block.
data_dir  = "/var/lib/outpost"
bind_addr = "0.0.0.0"

server {
  enabled = true
}
