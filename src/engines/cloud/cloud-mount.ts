/** What the engine remembers of one mount, as long as that serves: nothing of it is needed after a start. */
import type { Storage } from '../../barrier/storage.ts'
import { MountAws } from './mount-aws.ts'
import { Rollback } from './rollback.ts'

export class CloudMount {
  readonly aws: MountAws
  readonly rollback = new Rollback()

  private constructor(storage: Storage) {
    this.aws = new MountAws(storage)
  }

  static of({ storage }: { readonly storage: Storage }): CloudMount {
    let mount = mounts.get(storage)
    if (!mount) mounts.set(storage, (mount = new CloudMount(storage)))
    return mount
  }
}

/** A storage is the same in each request to its mount, until the core is sealed or the mount disabled. */
const mounts = new WeakMap<Storage, CloudMount>()
