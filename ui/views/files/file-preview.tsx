/** A file: its facts, and its content as text, an image, bytes, or as it grows. */
import { useState } from 'preact/hooks'
import type { HostFsStat } from '../../api/types.ts'
import { useKeys } from '../../app/keys.ts'
import { address, navigate, pathOf, setQuery } from '../../app/location.ts'
import { useResource } from '../../app/resource.ts'
import { showError, showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { formatBytes, Time } from '../../components/format.tsx'
import { Link } from '../../components/link.tsx'
import { Empty, Loaded } from '../../components/states.tsx'
import { Tabs } from '../../components/tabs.tsx'
import { View } from '../../components/view.tsx'
import { download } from './download.ts'
import { readBytes } from './file-api.ts'
import { type FileKind, kindOf } from './file-kind.ts'
import type { FilePlace } from './file-place.ts'
import { HexView } from './hex-view.tsx'
import { ImagePreview } from './image-preview.tsx'
import { visibleText } from '../../app/invisible-characters.ts'
import { logOf } from './names.ts'
import { TailView } from './tail-view.tsx'
import { TextPreview } from './text-preview.tsx'

/** Enough to know what a file contains. */
const HEAD_BYTES = 4096

interface FilePreviewProps {
  readonly place: FilePlace
  readonly stat: HostFsStat
  readonly parents: readonly { readonly title: string; readonly to: string }[]
  readonly reload: () => void
}

type Mode = 'text' | 'image' | 'hex' | 'tail'

const MODES: readonly (readonly [Mode, string, key: string])[] = [
  ['text', 'Text', 'x'],
  ['image', 'Image', 'i'],
  ['hex', 'Hex', 'b'],
  ['tail', 'Tail', 't'],
]

function defaultMode({ kind }: FileKind): Mode {
  if (kind === 'image') return 'image'
  return kind === 'binary' ? 'hex' : 'text'
}

export function FilePreview({ parents, place, reload, stat }: FilePreviewProps) {
  const { allocation, path, segments } = place
  const name = segments.at(-1) ?? allocation
  const isRegular = stat.FileMode.startsWith('-')
  const head = useResource(
    (signal) => readBytes(allocation, path, { offset: 0, limit: HEAD_BYTES, signal }),
    [allocation, path, stat.Size, isRegular],
  )
  const [isBusy, setBusy] = useState(false)
  const save = () => {
    setBusy(true)
    download({ allocation, path, name, size: stat.Size })
      .then((text) => text !== undefined && showSuccess(visibleText(text)), showError)
      .finally(() => setBusy(false))
  }
  const up = pathOf('files', allocation, ...segments.slice(0, -1))
  useKeys('File', [
    { keys: 'u', label: 'Go to the directory', run: () => navigate(up) },
    { keys: 'd', label: 'Download the file', run: save },
    { keys: 'r', label: 'Read the file again', run: reload },
    ...MODES.map(([mode, title, key]) => ({
      keys: key,
      label: `Show as ${title.toLowerCase()}`,
      run: () =>
        mode === 'image' && head.data !== undefined && kindOf(head.data).kind !== 'image'
          ? showError('The content of this file is not an image that browsers show.')
          : setQuery({ as: mode }),
    })),
  ])
  const log = logOf(segments)
  return (
    <View
      title={visibleText(name)}
      parents={parents}
      isFull
      actions={
        <>
          {log && (
            <Link to={`${pathOf('logs', allocation, log.task)}?type=${log.type}`} class="button">
              Open as log
            </Link>
          )}
          <Button onClick={reload} title="r">
            Read again
          </Button>
          <Button kind="primary" onClick={save} isBusy={isBusy} isDisabled={!isRegular} title="d">
            {isBusy ? 'Downloading…' : 'Download'}
          </Button>
        </>
      }
    >
      <p class="file-facts">
        <span title={`${stat.Size} bytes`}>{formatBytes(stat.Size)}</span>
        <span>
          modified <Time at={stat.ModTime} />
        </span>
        <code>{stat.FileMode}</code>
      </p>
      {isRegular ? (
        <Loaded resource={head}>{(bytes) => <Content place={place} stat={stat} kind={kindOf(bytes)} />}</Loaded>
      ) : (
        <Empty title="Not a regular file">
          <p>Pipes, sockets and devices have no content that could be shown.</p>
        </Empty>
      )}
    </View>
  )
}

interface ContentProps {
  readonly place: FilePlace
  readonly stat: HostFsStat
  readonly kind: FileKind
}

function Content({ kind, place, stat }: ContentProps) {
  const wanted = address.value.query.get('as')
  const offered = MODES.filter(([mode]) => mode !== 'image' || kind.kind === 'image')
  const mode = offered.find(([each]) => each === wanted)?.[0] ?? defaultMode(kind)
  const own = pathOf('files', place.allocation, ...place.segments)
  // A new version of the file is read from its start.
  const key = `${place.path}\0${stat.Size}\0${stat.ModTime}`
  return (
    <>
      <Tabs
        label="Forms of the content"
        tabs={offered.map(([each, title]) => ({ title, to: `${own}?as=${each}`, isCurrent: each === mode }))}
      />
      {mode === 'text' && <TextPreview key={key} place={place} size={stat.Size} />}
      {mode === 'image' && kind.kind === 'image' && (
        <ImagePreview key={key} place={place} size={stat.Size} contentType={kind.contentType} />
      )}
      {mode === 'hex' && <HexView key={key} place={place} size={stat.Size} />}
      {mode === 'tail' && <TailView key={place.path} place={place} />}
    </>
  )
}
