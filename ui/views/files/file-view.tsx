/** A directory or a file of an allocation. */
import { ApiError, read } from '../../api/client.ts'
import type { ServerAllocation } from '../../api/types.ts'
import { pathOf } from '../../app/location.ts'
import { useResource } from '../../app/resource.ts'
import type { ViewProps } from '../../app/view-props.ts'
import { Badge } from '../../components/format.tsx'
import { Link } from '../../components/link.tsx'
import { Failure, Loaded } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { useNamespacePermissions } from '../hosts/namespace-permissions.ts'
import { Directory } from './directory.tsx'
import { statFile } from './file-api.ts'
import type { FilePlace } from './file-place.ts'
import { FilePreview } from './file-preview.tsx'
import { visibleText } from '../../app/invisible-characters.ts'
import { filePath, fileSegmentsOf } from './names.ts'

/** What the server answers for a host that is down. */
const NO_PATH = 'No path to node'

export default function FileView({ params: { allocation = '', rest = '' } }: ViewProps) {
  const segments = fileSegmentsOf(rest)
  const path = filePath(segments)
  const place = { allocation, segments, path }
  const about = useResource(
    async (signal) => {
      const [stat, record] = await Promise.all([
        statFile(allocation, path, signal),
        read('/v1/allocation/{id}', { params: { id: allocation }, signal }).catch(() => undefined),
      ])
      return { stat, record }
    },
    [allocation, path],
  )
  const name = segments.at(-1)
  if (about.data === undefined) {
    return (
      <View title={visibleText(name ?? allocation)} parents={parentsOf(place, undefined)}>
        {about.error ? (
          <Failure
            error={about.error}
            hint={
              about.error instanceof ApiError && about.error.isForbidden
                ? 'Files need the capability "read-fs" in the namespace of the job. Private directories cannot be read.'
                : about.error.message === NO_PATH
                  ? 'The host of the allocation is down or not connected: see Hosts.'
                  : 'The task may have deleted the file, or the allocation may have been garbage-collected.'
            }
            retry={about.reload}
          />
        ) : (
          <Loaded resource={about}>{() => null}</Loaded>
        )}
      </View>
    )
  }
  const { record, stat } = about.data
  return stat.IsDir ? (
    <DirectoryView place={place} record={record} />
  ) : (
    <FilePreview place={place} stat={stat} parents={parentsOf(place, record)} reload={about.reload} />
  )
}

/** The list of allocations, this allocation, and the directories above. */
export function parentsOf(
  { allocation, segments }: FilePlace,
  record: ServerAllocation | undefined,
): readonly { readonly title: string; readonly to: string }[] {
  const root = visibleText(record === undefined || record.Name === '' ? allocation.slice(0, 8) : record.Name)
  const above = segments.slice(0, -1).map((segment, index) => ({
    title: visibleText(segment),
    to: pathOf('files', allocation, ...segments.slice(0, index + 1)),
  }))
  const own = segments.length === 0 ? [] : [{ title: root, to: pathOf('files', allocation) }]
  return [{ title: 'Files', to: '/files' }, ...own, ...above]
}

interface DirectoryViewProps {
  readonly place: FilePlace
  readonly record: ServerAllocation | undefined
}

function DirectoryView({ place, record }: DirectoryViewProps) {
  const name = place.segments.at(-1)
  const may = useNamespacePermissions(record ? [record.Namespace] : [])
  const title = name ?? (record === undefined || record.Name === '' ? place.allocation : record.Name)
  return (
    <View
      title={visibleText(title)}
      parents={parentsOf(place, record)}
      isFull
      actions={
        record && (
          <>
            <Badge state={record.ClientStatus} />
            {may(record.Namespace, 'read-logs', 'read-fs') && (
              <Link to={pathOf('logs', place.allocation)} class="button">
                Logs
              </Link>
            )}
            <Link to={pathOf('hosts', record.NodeID)} class="button">
              Host
            </Link>
          </>
        )
      }
    >
      <Directory place={place} />
    </View>
  )
}
