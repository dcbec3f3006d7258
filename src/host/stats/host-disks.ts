/** The host's file systems: the mounts that are disks, and their usage. */
import { unescapeMountPath } from './proc-file.ts'

/** One entry of `DiskStats`. Sizes are bytes, percentages 0 to 100. */
export interface DiskStats {
  readonly Available: number
  readonly Device: string
  readonly InodesUsedPercent: number
  readonly Mountpoint: string
  readonly Size: number
  readonly Used: number
  readonly UsedPercent: number
}

export interface DiskMount {
  readonly device: string
  readonly mountpoint: string
}

/** Of `statfs`: numbers of blocks and inodes; a block has `bsize` bytes. */
export interface FilesystemSizes {
  readonly bsize: number
  readonly blocks: number
  readonly bfree: number
  readonly bavail: number
  readonly files: number
  readonly ffree: number
}

/** Read-only images are always 100 % full. */
const IMAGE_FILESYSTEMS = new Set(['squashfs', 'erofs', 'iso9660', 'cramfs'])
/** Used if /proc/filesystems cannot be read. */
const DISK_FILESYSTEMS = ['ext2', 'ext3', 'ext4', 'xfs', 'btrfs', 'vfat', 'exfat', 'f2fs', 'ntfs3', 'jfs']

/** Names of the file systems that need a block device, from the text of /proc/filesystems. */
function diskFilesystems(text: string | undefined): Set<string> {
  const names = (text ?? '').split('\n').filter((line) => /^\t\w/.test(line))
  const found = new Set(names.length > 0 ? names.map((line) => line.trim()) : DISK_FILESYSTEMS)
  for (const name of IMAGE_FILESYSTEMS) found.delete(name)
  return found
}

interface MountLine extends DiskMount {
  readonly deviceNumber: string
  readonly root: string
  readonly type: string
}

function parseMountLine(line: string): MountLine | undefined {
  const [fields = '', filesystem] = line.split(' - ', 2)
  const [, , deviceNumber, root, mountpoint] = fields.split(' ')
  const [type, device] = filesystem?.split(' ') ?? []
  if (!deviceNumber || !root || !mountpoint || !type || !device) return undefined
  return { deviceNumber, root, type, device: unescapeMountPath(device), mountpoint: unescapeMountPath(mountpoint) }
}

/**
 * The disks among the mounts of /proc/self/mountinfo: one mount per device (that of its root directory, so that bind mounts
 * are not counted twice), without mounts hidden by others. `deviceName` returns the path of a device number, for the
 * kernel's pseudo device `/dev/root`.
 */
export function physicalMounts(
  mountinfo: string,
  filesystems: string | undefined,
  deviceName: (deviceNumber: string) => string | undefined = () => undefined,
): DiskMount[] {
  const types = diskFilesystems(filesystems)
  const visible = new Map<string, MountLine>()
  for (const line of mountinfo.split('\n')) {
    const mount = parseMountLine(line)
    if (mount) visible.set(mount.mountpoint, mount)
  }
  const disks = new Map<string, MountLine>()
  for (const mount of visible.values()) {
    const isDisk = mount.type === 'zfs' || (types.has(mount.type) && mount.device.startsWith('/dev/'))
    if (!isDisk) continue
    const known = disks.get(mount.deviceNumber)
    if (!known || (known.root !== '/' && mount.root === '/')) disks.set(mount.deviceNumber, mount)
  }
  return [...disks.values()].map(({ device, mountpoint, deviceNumber }) => ({
    device: device === '/dev/root' ? (deviceName(deviceNumber) ?? device) : device,
    mountpoint,
  }))
}

/** Usage of a file system. Blocks reserved for root are neither used nor available, as in `df`. */
export function diskStats(sizes: FilesystemSizes, mount: DiskMount): DiskStats {
  const used = Math.max(0, sizes.blocks - sizes.bfree) * sizes.bsize
  const available = Math.max(0, sizes.bavail) * sizes.bsize
  return {
    Available: available,
    Device: mount.device,
    InodesUsedPercent: percent(sizes.files - sizes.ffree, sizes.files),
    Mountpoint: mount.mountpoint,
    Size: sizes.blocks * sizes.bsize,
    Used: used,
    UsedPercent: percent(used, used + available),
  }
}

function percent(part: number, whole: number): number {
  return whole > 0 ? Math.max(0, (part / whole) * 100) : 0
}

/** Time limit of statfs(2). */
const TIMEOUT_MS = 500
/** A call that hangs occupies one of the four threads of the pool. */
const STUCK_CALLS_MAX = 2
/** Above the number of disks of real hosts; bounds memory if mounts come and go. */
const KNOWN_MAX = 1024

/** Reads the sizes of file systems with a time limit for hanging ones. */
export class FilesystemReader {
  readonly #statfs: (path: string) => Promise<FilesystemSizes>
  readonly #timeoutMs: number
  readonly #waiting = new Set<string>()
  readonly #known = new Map<string, FilesystemSizes>()

  constructor(statfs: (path: string) => Promise<FilesystemSizes>, timeoutMs: number = TIMEOUT_MS) {
    this.#statfs = statfs
    this.#timeoutMs = timeoutMs
  }

  /**
   * Sizes of the file system at `path`; undefined if the call fails, exceeds the time limit, or an earlier one still hangs.
   * While too many calls hang, the previous sizes.
   */
  async read(path: string): Promise<FilesystemSizes | undefined> {
    if (this.#waiting.has(path)) return undefined
    if (this.#waiting.size >= STUCK_CALLS_MAX) return this.#known.get(path)
    this.#waiting.add(path)
    const { promise: late, resolve } = Promise.withResolvers<undefined>()
    const timer = setTimeout(() => resolve(undefined), this.#timeoutMs).unref()
    const answer = this.#statfs(path)
      .catch(() => undefined)
      .finally(() => {
        clearTimeout(timer)
        this.#waiting.delete(path)
      })
    const sizes = await Promise.race([answer, late])
    if (this.#known.size >= KNOWN_MAX) this.#known.clear()
    if (sizes) this.#known.set(path, sizes)
    return sizes
  }
}
